package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// TestHelpHasTheGroupsOfAJob: who knows the flags knows the fields.
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
	if got := groupNames(); !slices.Equal(got, want) {
		t.Errorf("the flags have the groups %q, a job has %q", got, want)
	}
}
