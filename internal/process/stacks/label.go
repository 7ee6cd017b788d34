package stacks

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/process/fold"
)

// label returns a set of ranks as a text for people, with at most the given number of bytes:
// r0-36,38-511, or r0-511 -r37 if few are missing. If the text would be too long, it names the
// first ranks and counts the others.
func label(s fold.Ranks, most int) string {
	if len(s) == 0 {
		return "no rank"
	}
	plain := "r" + all(s)
	if but := withGaps(s); but != "" && len(but) < len(plain) {
		plain = but
	}
	if len(plain) <= most {
		return plain
	}
	for n := len(s) - 1; n > 0; n-- {
		if text := fmt.Sprintf("r%s and %d more", all(s[:n]), s[n:].Len()); len(text) <= most {
			return text
		}
	}
	return fmt.Sprintf("%d ranks", s.Len())
}

func all(s fold.Ranks) string {
	text, _ := s.MarshalText() // never fails
	return string(text)
}

// withGaps writes a set as the range from its first to its last rank, minus the missing ranks. It
// returns nothing if more ranks are missing than present.
func withGaps(s fold.Ranks) string {
	gaps := s.Gaps()
	if len(gaps) == 0 || gaps.Len() >= s.Len() {
		return ""
	}
	return "r" + all(fold.Ranks{{First: s[0].First, Last: s[len(s)-1].Last}}) + " -r" + all(gaps)
}
