//go:build !race

package straggler

const raced = false
