package entry

import (
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
)

// TestASubmissionIsWhole checks that a submission is one entry of the log, although a client sends
// it in several messages.
func TestASubmissionIsWhole(t *testing.T) {
	s := wiretest.Filled[replica.Submission]()
	s.Job.Request.Keep = nil
	if e, err := Read(Write(replica.Entry{Submitted: &s})); err != nil || !reflect.DeepEqual(*e.Submitted, s) {
		t.Errorf("the log has %+v, %v", e.Submitted, err)
	}
}
