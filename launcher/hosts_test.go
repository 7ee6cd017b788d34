package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/host/hostlist"
	"github.com/golaunch/golaunch/launcher"
)

func TestHostsOfAList(t *testing.T) {
	for list, want := range map[string][]launcher.Host{
		"n1,n2:4":             {{Name: "n1"}, {Name: "n2", Slots: 4}},
		"gpu[01-02,7]:8,n1":   {{Name: "gpu01", Slots: 8}, {Name: "gpu02", Slots: 8}, {Name: "gpu7", Slots: 8}, {Name: "n1"}},
		"[1-2]a":              {{Name: "1a"}, {Name: "2a"}},
		"root@n[1-2]":         {{Name: "root@n1"}, {Name: "root@n2"}},
		`DOM\me@n1,a@b@n2:1`:  {{Name: `DOM\me@n1`}, {Name: "a@b@n2", Slots: 1}},
		"10.0.0.1:2":          {{Name: "10.0.0.1", Slots: 2}},
		"[fd00::1]:8,[::1]":   {{Name: "fd00::1", Slots: 8}, {Name: "::1"}},
		"me@[fe80::1%eth0]:1": {{Name: "me@fe80::1%eth0", Slots: 1}},
		"":                    nil,
	} {
		if got, err := launcher.ParseHosts(list, ""); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", list, got, err, want)
		}
	}
	for list, want := range map[string]string{
		"n1,":                    "a host name is missing",
		",n1":                    "a host name is missing",
		"n1,,n2":                 "a host name is missing",
		":4":                     "a host name is missing",
		"n1:":                    `"" is no number of slots`,
		"n1:0":                   `"0" is no number of slots`,
		"n1:x":                   `"x" is no number of slots`,
		"n1:65537":               "is no number of slots",
		"fd00::1":                "[ADDRESS]:SLOTS for IPv6",
		"[fd00::1":               "[ADDRESS]:SLOTS for IPv6",
		"[fd00::g]":              "no host",
		"[fe80::1%$(id)]":        "no host",
		"n[1-3":                  "[ without ]",
		"n[3-1]":                 "goes down",
		"n[1-999999999]":         "more than 1048576 hosts",
		"a[1-999999],b[1-99999]": "more than 1048576 hosts",
		"n1,n1":                  "n1 is listed twice",
		"a@n1,b@n1":              "n1 is listed twice",
		"n[1-3],n2":              "n2 is listed twice",
		"-oProxyCommand=id":      "host name",
		"-l@n1":                  "does not begin with '-'",
		"@n1":                    "a user before @",
		"ssh://n1":               "no number of slots",
		"ssh://me@n1":            "a user before @",
		"$(id)@n1":               "a user before @",
		"a b@n1":                 "a user before @",
		"n1 n2":                  "in a host name",
		"n1\nn2":                 "in a host name",
	} {
		refused(t, list, "", "--hosts: ", want)
	}
	refused(t, "n1", "file", "give --hosts or --hostfile, not both", "")
}

func TestHostsOfAFile(t *testing.T) {
	for text, want := range map[string][]launcher.Host{
		"n1 slots=4\nn2 slots=8\n":          {{Name: "n1", Slots: 4}, {Name: "n2", Slots: 8}},
		"n1 slots=4 max_slots=8":            {{Name: "n1", Slots: 4}},
		"n1 max-slots=8":                    {{Name: "n1"}},
		"n1:4\r\n\r\nn2\r\n":                {{Name: "n1", Slots: 4}, {Name: "n2"}},
		"\ufeffn1\n":                        {{Name: "n1"}},
		"# all\n\n\tme@n1 slots=2 # this\n": {{Name: "me@n1", Slots: 2}},
		"n1\nn2\nn1\nn1\n":                  {{Name: "n1", Slots: 3}, {Name: "n2"}},
		"gpu[01-02] slots=8":                {{Name: "gpu01", Slots: 8}, {Name: "gpu02", Slots: 8}},
		"[fd00::1] slots=8":                 {{Name: "fd00::1", Slots: 8}},
	} {
		if got, err := launcher.ParseHosts("", hostfile(t, text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                         "it names no host",
		"# nothing\n":              "it names no host",
		"n1\nn2 slot=4":            `line 2: "slot=4": want slots=N`,
		"n1 4":                     `line 1: "4": want slots=N`,
		"n1 slots=":                `slots: "" is no number`,
		"n1 slots=-1":              `slots: "-1" is no number`,
		"n1:4 slots=4":             "the slots are given already",
		"n1 slots=4 slots=4":       "the slots are given already",
		"n1 slots=4 max_slots=2":   "max_slots=2 is less than slots=4",
		"n1 slots=4\n\nn1 slots=4": "line 3: n1 is listed already; list it once",
		"n1 slots=4\nn1":           "line 2: n1 is listed already",
		"n1\nn1\nn1 slots=1":       "line 3: n1 is listed already",
		"a@n1\nb@n1":               "line 2: n1 is listed already",
		"n1\n\x00\x01":             "line 2: ",
		"n[1-2000000]":             "line 1: ",
	} {
		file := hostfile(t, text)
		refused(t, "", file, "--hostfile "+file+": ", want)
	}
	big := hostfile(t, strings.Repeat("#", 16<<20+1))
	refused(t, "", big, "it has more than 16777216 bytes", "")
	refused(t, "", filepath.Join(t.TempDir(), "none"), "no such file", "")
}

func hostfile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// refused checks that ParseHosts returns a usage error of one line that contains both texts.
func refused(t *testing.T, list, file, a, b string) {
	t.Helper()
	hosts, err := launcher.ParseHosts(list, file)
	if err == nil || !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) ||
		strings.Contains(err.Error(), "\n") || len(hosts) > 0 {
		t.Errorf("%q: %d hosts and %v, want %q and %q", list, len(hosts), err, a, b)
	}
}

// FuzzHosts reads any text as a list and as a file. The hosts that it reads can be written as a
// list, which reads as the same hosts.
func FuzzHosts(f *testing.F) {
	for _, seed := range []string{
		"n1,n2:4", "gpu[01-04]:8", "me@n1", "[fd00::1]:8", "n1 slots=4\nn2", "n1\r\nn1 # twice\n", "\ufeff", "n[1-999999999]", "-x", "a@[::1%e]",
	} {
		f.Add(seed)
	}
	file := filepath.Join(f.TempDir(), "hosts")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		checkHosts(t, text, "")
		checkHosts(t, "", file)
	})
}

func checkHosts(t *testing.T, list, file string) {
	t.Helper()
	hosts, err := launcher.ParseHosts(list, file)
	if err != nil {
		if !errors.Is(err, launcher.ErrUsage) || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 1000 {
			t.Fatalf("%q", err)
		}
		return
	}
	if list+file == "" {
		return
	}
	if len(hosts) == 0 || len(hosts) > hostlist.Max {
		t.Fatalf("%d hosts", len(hosts))
	}
	words := make([]string, len(hosts))
	for i, h := range hosts {
		words[i] = word(h)
	}
	again, err := launcher.ParseHosts(strings.Join(words, ","), "")
	if err != nil || !slices.Equal(again, hosts) {
		t.Fatalf("%v are again %v: %v", hosts, again, err)
	}
}

func word(h launcher.Host) string {
	text := h.Name
	if at := strings.LastIndexByte(text, '@') + 1; strings.Contains(text[at:], ":") {
		text = text[:at] + "[" + text[at:] + "]"
	}
	if h.Slots > 0 {
		text += fmt.Sprintf(":%d", h.Slots)
	}
	return text
}

func TestPlanOfHosts(t *testing.T) {
	hosts := func(list string) []launcher.Host {
		got, err := launcher.ParseHosts(list, "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct {
		list  string
		job   launcher.Job
		nodes int
		ranks int
		err   string
	}{
		{list: "n[1-4]", nodes: 4, ranks: 4},
		{list: "n[1-4]:2", nodes: 4, ranks: 8},
		{list: "n[1-4]", job: launcher.Job{Resources: launcher.Resources{Spares: 1}}, nodes: 3, ranks: 3},
		{list: "n[1-4]:8", job: launcher.Job{Resources: launcher.Resources{PerNode: []int{2}}}, nodes: 4, ranks: 8},
		{list: "n[1-4]", job: launcher.Job{Resources: launcher.Resources{MinNodes: 2, MaxNodes: 2}}, nodes: 2, ranks: 2},
		{list: "n[1-4]", job: launcher.Job{Resources: launcher.Resources{MinNodes: 4, MaxNodes: 4, Spares: 1}}, err: "4 nodes and 1 spares"},
		{list: "n[1-4]", job: launcher.Job{Resources: launcher.Resources{Spares: 4}}, err: "1 nodes and 4 spares"},
		{list: "n1:4,n2", err: "n1 has 4 slots and n2 has 0"},
		{list: "n1:4,n2:2", job: launcher.Job{Resources: launcher.Resources{PerNode: []int{3}}}, err: "n2 has 2 slots"},
		{list: "n1", job: launcher.Job{Network: launcher.Network{Rendezvous: "n1:1"}}, err: "leave out simulate, coordinator and rendezvous"},
	} {
		c.job.Network.Hosts, c.job.Command = hosts(c.list), []string{"true"}
		plan, err := launcher.Plan(t.Context(), c.job)
		switch {
		case c.err != "":
			if err == nil || !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.list, err, c.err)
			}
		case err != nil || len(plan.Groups) != c.nodes || plan.WorldSize() != c.ranks:
			t.Errorf("%s: %d nodes with %d ranks (%v), want %d with %d", c.list, len(plan.Groups), plan.WorldSize(), err, c.nodes, c.ranks)
		}
	}
	odd := launcher.Network{Hosts: []launcher.Host{{Name: "-oProxyCommand=id"}}}
	if _, err := launcher.Plan(t.Context(), launcher.Job{Network: odd, Command: []string{"true"}}); err == nil {
		t.Error("an option is taken for a host")
	}
}
