package main

import (
	"slices"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
)

// TestOneVerb checks that a command line with a verb makes only that verb, and that the table has
// its name.
func TestOneVerb(t *testing.T) {
	for _, v := range verbs {
		args := []string{v.name, "--", "true"}
		root := rootFor(&cli.Console{}, args)
		if all := root.Commands(); len(all) != 1 || all[0].Name() != v.name {
			t.Errorf("%q makes %d verbs", args, len(all))
		}
		if c, _, err := root.Find(args); err != nil || c.Name() != v.name || c.CommandPath() != "golaunch "+v.name {
			t.Errorf("%q runs %q (%v)", args, c.CommandPath(), err)
		}
	}
}

// TestAllVerbs checks that a command line makes all verbs unless it certainly runs a job.
func TestAllVerbs(t *testing.T) {
	for _, c := range []struct {
		args []string
		all  bool
	}{
		{nil, true},
		{[]string{"--help"}, true},
		{[]string{"run"}, true},
		{[]string{"run", "--"}, true},
		{[]string{"stauts"}, true},
		{[]string{"stauts", "--", "true"}, true},
		{[]string{"--quiet", "stauts", "--", "true"}, true},
		{[]string{"--nodes", "--", "true"}, true},
		{[]string{"--help", "--", "true"}, true},
		{[]string{"--no-such-flag", "--", "true"}, true},
		{[]string{"__complete", "st"}, true},
		{[]string{"--version"}, false},
		{[]string{"--", "true"}, false},
		{[]string{"--quiet", "--nodes", "status", "-n", "2", "--env=A=b", "--", "status"}, false},
	} {
		names := []string{}
		for _, v := range rootFor(&cli.Console{}, c.args).Commands() {
			names = append(names, v.Name())
		}
		if slices.Contains(names, "status") != c.all {
			t.Errorf("%q makes %q", c.args, names)
		}
	}
}
