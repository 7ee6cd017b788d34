package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// With --json, a verb prints JSON by the contract in docs/json.md: on stdout one object, or one
// object a line, and messages as objects on stderr. A verb prints with jsonout.Print, Say and Warn,
// and returns its error.

// Execute runs the verb that args name, prints its error, and returns its exit code.
func (s *Console) Execute(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		prepareCompletion(root)
	}
	c, err := root.ExecuteC()
	if err == nil {
		err = s.unshown
	}
	if err == nil {
		return s.code
	}
	who, text, code := "golaunch", err.Error()+adviceOnFiles(err), ExitFailure
	if errors.Is(err, launcher.ErrUsage) || !s.began {
		who, text, code = c.CommandPath(), strings.TrimPrefix(text, launcher.ErrUsage.Error()+": "), ExitUsage
	}
	if s.code != 0 {
		code = s.code
	}
	s.JSON = s.JSON || !s.began && wantsJSON(c, args)
	s.Message(who+": "+text, jsonout.Words{Error: errorShown(c, err, text, code)})
	return code
}

// adviceOnFiles says which limit to raise if golaunch itself may open no further file.
func adviceOnFiles(err error) string {
	var limit unix.Rlimit
	if !errors.Is(err, unix.EMFILE) || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return ""
	}
	return fmt.Sprintf("; the limit of open files (ulimit -n) is %d, and golaunch needs more: raise it to %d or more", limit.Cur, max(enoughFiles, 2*limit.Cur))
}

// enoughFiles suffices for a job on this machine. It is the kernel's own default for the hard limit.
const enoughFiles = 4096

// wantsJSON reports whether args ask for JSON. It does not parse the flags, since they may be
// wrong. A verb that parses its own flags, such as torchrun, has no --json.
func wantsJSON(c *cobra.Command, args []string) bool {
	if c.DisableFlagParsing {
		return false
	}
	wants := false
	for _, name := range Variables(c.Name(), "json") {
		if f := c.Flags().Lookup("json"); f != nil {
			wants, _ = strconv.ParseBool(os.Getenv(name))
		}
	}
	for _, arg := range args {
		if arg == "--" {
			break
		}
		switch name, value, given := strings.Cut(arg, "="); {
		case name == "--json" && given:
			wants, _ = strconv.ParseBool(value)
		case name == "--json":
			wants = true
		}
	}
	return wants
}

// errorShown describes an error with its exit code.
func errorShown(c *cobra.Command, err error, message string, code int) *jsonout.Error {
	kind := jsonout.Failure
	switch {
	case errors.Is(err, launcher.ErrNotThere): // first: some of these errors are errors of usage too
		kind = jsonout.NotThere
	case code == ExitUsage:
		kind = jsonout.Usage
	case errors.Is(err, launcher.ErrNoCoordinator):
		kind = jsonout.NoCoordinator
	}
	verb := "run"
	if c.HasParent() {
		verb = c.Name()
	}
	return &jsonout.Error{Kind: kind, Code: code, Verb: verb, Message: message}
}
