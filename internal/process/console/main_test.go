package console

import (
	"fmt"
	"os"
	"testing"
)

// helper, in the environment, makes the test program a program that uses a console on its own
// stdout and stderr.
const helper = "CONSOLE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	c := New(os.Stdout, os.Stderr)
	v := Splitter{printer: c.out}
	for range 3 {
		feed(&v, "a line\n")
	}
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "closed:", err)
	}
	os.Exit(7)
}
