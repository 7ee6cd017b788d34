package rankenv_test

import (
	"strings"
	"testing"

	"github.com/golaunch/golaunch/rankenv"
)

func TestParseEnv(t *testing.T) {
	t.Setenv("RANKENV_TEST", "mine")
	for arg, want := range map[string]string{
		"A=b": "A=b", "_a1=": "_a1=", "A=b=c": "A=b=c", "A=two words": "A=two words", "RANKENV_TEST": "RANKENV_TEST=mine",
	} {
		v, err := rankenv.ParseEnv(arg)
		if err != nil || v.Name+"="+v.Value != want || v.Source != rankenv.User || v.Reason == "" {
			t.Errorf("ParseEnv(%q) = %+v, %v; want %s", arg, v, err, want)
		}
	}
	for arg, want := range map[string]string{
		"": "no name", "=b": "no name", "1A=b": "no name", "A-B=c": "no name", "A B": "no name", "Ä=1": "no name",
		"A=b\x00c":             "NUL",
		"RANKENV_TEST_UNSET":   "--env RANKENV_TEST_UNSET=value",
		"GOLAUNCH_TOKEN":       "token",
		"GOLAUNCH_TOKEN_FILE=": "token",
	} {
		if v, err := rankenv.ParseEnv(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseEnv(%q) = %+v, %v; want an error with %q", arg, v, err, want)
		}
	}
}
