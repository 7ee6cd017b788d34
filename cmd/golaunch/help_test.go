package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/launcher"
)

// TestHelpHasTheGroupsOfAJob: the help groups flags by the fields of a job, and names the groups
// like these fields.
func TestHelpHasTheGroupsOfAJob(t *testing.T) {
	want := []string{"Job"}
	for f := range reflect.TypeFor[launcher.Job]().Fields() {
		if f.IsExported() && f.Type.Kind() == reflect.Struct {
			want = append(want, f.Name)
			if f.Name != f.Type.Name() {
				t.Errorf("field %s is of type %s", f.Name, f.Type)
			}
		}
	}
	if got := cli.FlagGroups(newRoot(&cli.Console{}).Flags()); !slices.Equal(got, want) {
		t.Errorf("the flags have the groups %q, a job has %q", got, want)
	}
}

// TestHelpThatCannotBePrinted: golaunch says so, and fails.
func TestHelpThatCannotBePrinted(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{
		"--help", "--help-all", "--version", "help", "help run", "run --help", "torchrun --help", "version",
		"torchrun --print-completion bash",
	} {
		var errs strings.Builder
		code := Main(&cli.Console{Stdout: full, Stderr: &errs}, strings.Fields(args))
		if want := "golaunch: write /dev/full: no space left on device\n"; code != cli.ExitFailure || errs.String() != want {
			t.Errorf("golaunch %s: code %d, %q", args, code, errs.String())
		}
	}
}

// TestInternalVerbsAreHidden: help, completion and manual pages have no internal verbs.
func TestInternalVerbsAreHidden(t *testing.T) {
	for _, c := range newRoot(&cli.Console{}).Commands() {
		if strings.HasPrefix(c.Name(), "_") != c.Hidden {
			t.Errorf("%s: hidden is %t", c.Name(), c.Hidden)
		}
	}
}

// TestManualPages: each public verb has a manual page.
func TestManualPages(t *testing.T) {
	// The tags are the same as in every other build of a test run, so most packages need not be
	// compiled again.
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-tags", "man,grpcnotrace", ".", "_man", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range newRoot(&cli.Console{}).Commands() {
		text, err := os.ReadFile(filepath.Join(dir, "golaunch-"+c.Name()+".1"))
		switch wanted := c.IsAvailableCommand() && c.Name() != "help"; {
		case (err == nil) != wanted:
			t.Errorf("%s: %v", c.Name(), err)
		case wanted && !strings.Contains(string(text), strings.ReplaceAll(c.Short, "'", `\'`)) && !strings.Contains(string(text), c.Short):
			t.Errorf("the page of %s does not say that it is to %s", c.Name(), c.Short)
		}
	}
}
