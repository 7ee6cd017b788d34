package ranks

import (
	"fmt"
	"strings"
	"time"
)

// maxNamed bounds the leftover processes that a message names.
const maxNamed = 4

// childTime is how long children may take to end after their rank. The workers of a Python pool,
// for example, end only when they notice that their parent has ended.
const childTime = time.Second

// EndLeftovers ends the processes that ranks have left running in a scope. The processes may run
// for the time linger. Then EndLeftovers calls say with their names and sends SIGTERM, and SIGKILL
// after the grace period. It does nothing more once stopped returns true.
func EndLeftovers(s Scope, linger, grace time.Duration, stopped func() bool, say func(left string)) error {
	left, err := s.Linger(max(linger, childTime))
	if err != nil || len(left) == 0 || stopped() {
		return err
	}
	say(named(left))
	return s.Rest(grace)
}

func named(left []string) string {
	text := strings.Join(left[:min(len(left), maxNamed)], ", ")
	if more := len(left) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
