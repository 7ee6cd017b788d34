package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errDied means that a child ended although its meter did not kill it.
var errDied = errors.New("GPU meter died")

// ask asks one question. The error may be the error of ctx. After an error the caller must kill the
// child, because the child's late answer would be taken for the answer to another question. A child
// that is still opening the driver may live.
func (t *meterChild) ask(ctx context.Context) (answer, error) {
	if !t.opened {
		if a, err := t.next(ctx); err != nil || a.Why != "" {
			return a, err
		}
		t.opened = true
	}
	_, _ = io.WriteString(t.stdin, "\n") // fails if the child is gone
	return t.next(ctx)
}

func (t *meterChild) next(ctx context.Context) (answer, error) {
	for lines := t.lines; ; {
		select {
		case text, more := <-lines:
			switch {
			case more:
				return parseAnswer(text)
			case t.flooded:
				return answer{}, errors.New("GPU meter given up: it printed more than 1 MiB")
			}
			lines = nil // the child is dying
		case <-t.gone:
			return answer{}, fmt.Errorf("%w: %v%s; hint: run nvidia-smi", errDied, t.cmd.ProcessState, firstLine(t.complaints.data))
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// opening reports whether the driver is still being opened within its time limit, which is longer
// than the limit for one question.
func (t *meterChild) opening() bool {
	return !t.opened && !t.doomed && time.Since(t.started) < patience-farewell
}
