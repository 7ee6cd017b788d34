package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errDied says that a child ended without having been killed by its meter.
var errDied = errors.New("GPU meter died")

// ask takes the answer to one question. An error may be that of ctx; the child must be killed after any, unless it is still opening the
// driver: what it says later would be taken for the answer to another question.
func (t *teller) ask(ctx context.Context) (answer, error) {
	if !t.opened {
		if a, err := t.next(ctx); err != nil || a.Why != "" {
			return a, err
		}
		t.opened = true
	}
	_, _ = io.WriteString(t.stdin, "\n") // which fails when the child is gone
	return t.next(ctx)
}

func (t *teller) next(ctx context.Context) (answer, error) {
	for lines := t.lines; ; {
		select {
		case text, more := <-lines:
			switch {
			case more:
				return parseAnswer(text)
			case t.flooded:
				return answer{}, errors.New("GPU meter given up: it printed more than 1 MiB")
			}
			lines = nil // it is dying
		case <-t.gone:
			return answer{}, fmt.Errorf("%w: %v%s; hint: run nvidia-smi", errDied, t.cmd.ProcessState, firstLine(t.complaints.data))
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// opening says that the driver may still be opened in time, which is not bound to one question.
func (t *teller) opening() bool {
	return !t.opened && !t.doomed && time.Since(t.started) < patience-farewell
}
