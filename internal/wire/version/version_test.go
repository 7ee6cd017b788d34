package version

import (
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	built := func(main string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: main}}
		for _, s := range settings {
			key, value, _ := strings.Cut(s, "=")
			info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
		}
		return info
	}
	const revision = "vcs.revision=79d7082ab9f0aa11bb22cc33dd44ee55ff667788"
	for _, c := range []struct {
		info     *debug.BuildInfo
		released bool
		want     string
	}{
		{built("v1.2.3", revision), false, "v1.2.3"},
		{built("v0.0.0-20261124093309-79d7082ab9f0", revision), true, "v1.2.3"},
		{built("v0.0.0-20261124093309-79d7082ab9f0", revision), false, "v1.2.3+devel.79d7082ab9f0"},
		{built("v1.2.3+dirty", revision, "vcs.modified=true"), false, "v1.2.3+devel.79d7082ab9f0.dirty"},
		{built("v1.2.4-0.20261124093309-79d7082ab9f0"), false, "v1.2.3+devel.79d7082ab9f0"},
		{built("(devel)"), false, "v1.2.3+devel"},
		{built(""), false, "v1.2.3+devel"},
		{&debug.BuildInfo{Main: debug.Module{Version: "v7.0.0"}, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, false, "v1.2.3"},
	} {
		if got := of("1.2.3", c.released, c.info); got != c.want {
			t.Errorf("%s, %v: %s, want %s", c.info.Main.Version, c.info.Settings, got, c.want)
		}
	}
}

func TestString(t *testing.T) {
	if got := String(); !regexp.MustCompile(`^v\d+\.\d+\.\d+(-rc\.\d+)?(\+devel[0-9a-z.]*)?$`).MatchString(got) {
		t.Error(got)
	}
}
