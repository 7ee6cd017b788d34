//go:build !amd64

package stacks

// olderCalls are none: this machine has only what is in systemCalls.
var olderCalls map[int]string
