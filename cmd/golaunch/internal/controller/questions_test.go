package controller

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// A question that is too long gets an answer, and the questions before and after it are read.
func TestQuestionsThatAreTooLong(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	questions := questionsOf(strings.NewReader(`{"id": 1, "do": "usage"}
{"id": 20, "do": "start", "with": "` + long + `"}
{"id": 3, "do": "stop"}
`))
	for _, want := range []struct {
		id   int
		long bool
	}{{1, false}, {20, true}, {3, false}} {
		q, tooLong, err := questions.next()
		if err != nil || q.ID != want.id || errors.Is(tooLong, launcher.ErrUsage) != want.long {
			t.Errorf("got question %d, %v, %v; want %+v", q.ID, tooLong, err, want)
		}
	}
	if _, _, err := questions.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, _, err := questionsOf(strings.NewReader(`["` + long + `"]` + "\n")).next(); err == nil {
		t.Error("a question without a number is taken")
	}
}
