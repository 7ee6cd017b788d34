// Package shellword quotes a text so that a shell reads it as one word.
package shellword

import (
	"strings"
)

// Quote quotes a text for any user's login shell: sh, csh or fish. sbatch reads the result in the
// same way.
func Quote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
