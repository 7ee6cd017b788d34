package entry

import (
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
)

// TestASubmissionIsWhole although its messages to a coordinator are several.
func TestASubmissionIsWhole(t *testing.T) {
	s := wiretest.Filled[replica.Submission]()
	s.Job.Request.Keep = nil
	if e, err := Read(Write(replica.Entry{Submitted: &s})); err != nil || !reflect.DeepEqual(*e.Submitted, s) {
		t.Errorf("the log has %+v, %v", e.Submitted, err)
	}
}
