package checkpoint

import "bytes"

// Python's json module writes numbers that JSON does not have: NaN and Infinity. Trainers log them,
// for example as the norm of a gradient that overflows.

// wholeJSON reports whether a file of JSON is not cut short: it is not empty, each string, array and
// object in it ends, and no byte is zero, since a file may get its length before its content. It
// accepts whatever else a program may call JSON.
func wholeJSON(text []byte) bool {
	depth, content := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			n := stringLength(text[i:])
			if n == 0 {
				return false
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return false
			}
		case 0:
			return false
		case ' ', '\n', '\r', '\t':
			continue
		}
		content = true
	}
	return content && depth == 0
}

// strictJSON returns the JSON of Python's json module as encoding/json reads it: with null for
// numbers that JSON does not have.
func strictJSON(text []byte) []byte {
	strict := make([]byte, 0, len(text))
	for len(text) > 0 {
		n := 1
		if text[0] == '"' {
			if n = stringLength(text); n == 0 {
				n = len(text)
			}
		}
		for _, number := range []string{"NaN", "Infinity", "-Infinity"} {
			if bytes.HasPrefix(text, []byte(number)) {
				strict, text, n = append(strict, "null"...), text[len(number):], 0
			}
		}
		strict, text = append(strict, text[:n]...), text[n:]
	}
	return strict
}

// stringLength returns the length of the string with which a text begins, with its quotes. It
// returns 0 if the string does not end.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}
