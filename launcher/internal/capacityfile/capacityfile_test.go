package capacityfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/placement"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`
# nodes of our site
kinds:
  a100-2:
    gpus: 2
    cpus: 96
    memory: 1TiB
    labels: {rack: r7}
    min: 1
    max: 4
    priority: 2
    cost: 12.5
    idle: 90s
    start_timeout: 2h
    call_timeout: 5s
    agent: [--as-submitter]
    slurm: [--partition=gpu, "--gres=gpu:2"]
  spare:
    max: 1
    exec: ./provider
`))
	want := []Kind{{
		Kind: capacity.Kind{
			Name: "a100-2", Min: 1, Max: 4, Priority: 2, Cost: 12.5, Idle: 90 * time.Second, StartTimeout: 2 * time.Hour,
			Node: placement.Node{GPUs: []placement.GPU{{Index: 0}, {Index: 1}}, CPUs: 96, Memory: 1 << 40, Labels: map[string]string{"rack": "r7"}},
		},
		Provider: "slurm", Words: []string{"--partition=gpu", "--gres=gpu:2"}, Agent: []string{"--as-submitter"}, Limit: 5 * time.Second,
	}, {
		Kind:     capacity.Kind{Name: "spare", Max: 1, Idle: defaultIdle, StartTimeout: defaultStartTimeout},
		Provider: "exec", Words: []string{"./provider"}, Limit: defaultLimit,
	}}
	if err != nil || !reflect.DeepEqual(got.Kinds, want) || got.Name != DefaultName {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func TestLimits(t *testing.T) {
	got, err := Parse([]byte("limits:\n  alice: {batch: 64, production: 8}\n  '*': {production: 0}\n"))
	want := map[string]map[string]int{"alice": {"batch": 64, "production": 8}, "*": {"production": 0}}
	if err != nil || !reflect.DeepEqual(got.Limits, want) || got.Kinds != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	kind := func(text string) string { return "kinds:\n  a:\n    max: 1\n    exec: [x]\n    " + text }
	many := "kinds:\n"
	for i := range maxKinds + 1 {
		many += fmt.Sprintf("  k%d: {max: 1, exec: x}\n", i)
	}
	bomb := "x:\n  a: &a {max: 1}\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += fmt.Sprintf("  %c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 20))
	}
	for text, want := range map[string]string{
		"":                                  "it is empty; want kinds:",
		"# nothing\n":                       "it is empty; want kinds:",
		"name: a\n---\nname: b\n":           "line 2: a second document begins here; want one",
		"name: a\n---\n\t\n":                "found character that cannot start any token",
		"kinds:":                            `line 1: "": want names with values`,
		"kinds: {}":                         "it names no kinds of nodes",
		"nodes:\n  a: 1":                    `line 1: "nodes" is not known; want kinds, max, limits, name, head,`,
		"kinds: [a]":                        "line 1: a list is here: want names with values",
		"kinds:\n  A_1: {}":                 `line 2: "A_1" is no name of a kind; use small letters, digits and hyphens, 40 at most`,
		"kinds:\n  a: {max: 1}":             "line 2: a has no provider; give it one of aws, azure, exec, gcp, kubernetes, slurm, ssh",
		"kinds:\n  a: {exec: x}":            "line 2: a has no max, the number of nodes that there may be",
		"kinds:\n  a:\n\tmax: 1":            "line 3: found character that cannot start any token",
		kind("max: 2"):                      "line 5: max is there twice",
		kind("min: 2"):                      "line 2: a has a min of 2, and a max of 1",
		kind("min: -1"):                     `line 5: "-1": want a number from 0 to 10000`,
		kind("gpus: many"):                  `line 5: "many": want a number from 0 to 1024`,
		kind("gpus: 1e9"):                   `line 5: "1e9": want a number from 0 to 1024`,
		kind("memory: 8G"):                  `line 5: "8G": want an amount of memory, such as 512GiB`,
		kind("memory: 9999999999999TiB"):    `line 5: "9999999999999TiB": want an amount of memory, such as 512GiB`,
		kind("idle: 0s"):                    `line 5: "0s": want a time of at least 1s, such as 90s, 10m or 2h`,
		kind("idle: 10"):                    `line 5: "10": want a time of at least 1s, such as 90s, 10m or 2h`,
		kind("cost: .nan"):                  `line 5: ".nan": want a price per hour`,
		kind("cost: [1]"):                   "line 5: a list is here: want a price",
		kind("labels: [a]"):                 "line 5: a list is here: want names with values",
		kind("labels: {capacity.tag: x}"):   "line 5: golaunch sets the label capacity.tag itself",
		kind("labels: {a=b: x}"):            `line 5: "a=b" is no name of a label; use letters,`,
		kind("labels: {a: 'x=1,y=2'}"):      `line 5: "x=1,y=2": want a text without equals signs`,
		kind("slurm: [--x]"):                "line 5: a has a provider already: exec",
		kind("maximum: 3"):                  `line 5: "maximum" is not known; want gpus, cpus,`,
		"kinds:\n  a: {max: 1, exec: }":     "line 2: \"\": want a command and its arguments",
		"kinds:\n  a: {max: 1, ssh: []}":    "line 2: a list is here: want hosts",
		"kinds:\n  a: {max: 1, exec: [[]]":  "did not find expected",
		"kinds:\n  a: {max: 1, exec: ['']}": "line 2: a list is here: want a command and its arguments",
		many:                                "it names 65 kinds of nodes, 64 at most",
		bomb:                                "with what aliases stand for, it has more than 20000 values",
		"limits: {}":                        "it names no kinds of nodes, and limits no users",
		"limits: {alice: {urgent: 1}}":      `line 1: "urgent" is not known; want production, interactive, batch`,
		"limits: {alice: {batch: -1}}":      `line 1: "-1": want a number from 0 to`,
		"limits: {alice: {batch: 1.5}}":     `line 1: "1.5": want a number from 0 to`,
		"limits: {alice: 8}":                `line 1: "8": want names with values`,
		"limits: {'': {batch: 1}}":          `line 1: "" is no user`,
		"limits:\n  a: {}\n  a: {batch: 1}": "line 3: a is there twice",
		"x: &x [*x]":                        "line 1: with what aliases stand for, it has more than 20000 values",
		"kinds: {a: {max: 1, aws: []}}":     "line 1: a list is here: want options of aws ec2 run-instances",
		kind("tags: [a]"):                   "line 5: a list is here: want names with values",
		"name: A b\n":                       `line 1: "A b": want the name of a cluster`,
		"head: -oProxyCommand=x\n":          `line 1: "-oProxyCommand=x": want [USER@]HOST`,
		"max: 0\n":                          `line 1: "0": want the number of nodes that there may be of all kinds, 1 at least`,
		"kinds: {a: {max: 1, aws: x}}":      "the cluster has no name, by which the machines of a are found",
		"head: {kinds: a}\n":                `line 1: "kinds" is not known; want kind`,
		"ssh: {password: a}\n":              `line 1: "password" is not known; want user, key`,
		"files: {x/y: z}\n":                 `line 1: "x/y": want an absolute path on the nodes, or one that begins with ~/`,
		"files: {~/../../etc: z}\n":         `line 1: "~/../../etc": want an absolute path`,
		"max: 2\nkinds:\n  a: {min: 1, max: 2, exec: x}\n  b: {min: 2, max: 2, exec: x}\n": "its kinds have at least 3 nodes, and all together may have 2",
		"head: {kind: b}\nkinds:\n  a: {max: 1, exec: x}\n":                                "the head is of kind b, which is not among the kinds",
		"head: {kind: a}\nkinds:\n  a: {max: 1, exec: x}\n":                                "the head is of kind a: only a machine of aws, azure, gcp can be made for it",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\ngives %v\nwant  %s", text, err, want)
		}
	}
}

func TestReadNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "capacity.yaml")
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	for text, want := range map[string]string{"kinds: 3": file + `: line 1: "3"`, strings.Repeat("#", maxFile+1): file + " has more than 256 KiB"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("kinds:\n  a: {max: 1, exec: [x], memory: 1GiB}\n"))
	for _, name := range rayFiles(f) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err == nil && (len(file.Kinds)+len(file.Limits) == 0 || len(file.Kinds) > maxKinds) {
			t.Errorf("%d kinds", len(file.Kinds))
		}
	})
}
