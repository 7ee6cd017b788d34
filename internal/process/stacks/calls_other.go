//go:build !amd64

package stacks

// olderCalls is empty: this architecture has only systemCalls.
var olderCalls map[int]string
