package verdict

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestCausesAreDocumented checks that docs/failures.md has exactly the known causes.
func TestCausesAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	all := builtin()
	for _, x := range exits {
		all = append(all, x.rule)
	}
	for _, v := range []report.Verdict{unknown, NodeLost, Unreachable, Hang, early} {
		all = append(all, Rule{Action: v.Action, Cause: v.Cause, Title: v.Title})
	}
	all = append(all, raised, threw)
	want := table(all)
	if _, have, _ := strings.Cut(string(data), "| cause | advice | what it is |\n| --- | --- | --- |\n"); !strings.HasPrefix(have, want+"\n") {
		t.Errorf("docs/failures.md should have\n%s", want)
	}
}

// table returns a table with each cause once. The first rule of a cause has its title.
func table(rules []Rule) string {
	var b strings.Builder
	for _, r := range rules {
		if strings.Contains(b.String(), "`"+r.Cause+"`") {
			continue
		}
		echo := ""
		if r.Victim {
			echo = ", echo"
		}
		fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", r.Cause, r.Action, echo, r.Title)
	}
	return b.String()
}
