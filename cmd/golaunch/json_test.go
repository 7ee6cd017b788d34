package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/diagnosis"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/listing"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/watch"
	"github.com/golaunch/golaunch/internal/process/fold"
	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// outputs has all objects that golaunch writes, by the section of docs/json.md that has their
// fields.
var outputs = []struct {
	section string
	record  jsonout.Record
}{
	{"Errors and golaunch's own words", &jsonout.Words{}},
	{"`golaunch run --json`", &jsonout.Submitted{}},
	{"`golaunch plan --json`", &planShown{}},
	{"`golaunch plan --explain --json`", &explained{}},
	{"`golaunch env --json`", &surroundings{}},
	{"`golaunch version --json`", &versionShown{}},
	{"`golaunch doctor --json`", &diagnosis.Machine{}},
	{"`golaunch doctor --fabric --json`", &diagnosis.Fabric{}},
	{"`golaunch explain --json`", &explanation{}},
	{"`golaunch explain --start --json`", &startsExplained{}},
	{"`golaunch coordinator --json`", &headShown{}},
	{"`golaunch status --json`", &listing.Cluster{}},
	{"`golaunch jobs --json`", &listing.Jobs{}},
	{"`golaunch cost --json`", &listing.Costs{}},
	{"`golaunch stacks --json`", &watch.StacksShown{}},
	{"`golaunch top --json`", &watch.TopShown{}},
	{"`golaunch logs --json`", &watch.Line{}},
	{"`golaunch logs --json`", &watch.MissingOutput{}},
	{"`golaunch stop --json`", &stoppedShown{}},
	{"`golaunch agent --drain --json`", &drainedShown{}},
	{"`golaunch swap --json`", &swappedShown{}},
	{"events.jsonl", &jsonout.Event{}},
}

// elsewhere has the sections of objects that are a part of several others.
var elsewhere = map[reflect.Type]string{
	reflect.TypeFor[report.Result]():       "`golaunch run --json`",
	reflect.TypeFor[report.Failure]():      "`golaunch run --json`",
	reflect.TypeFor[report.Exit]():         "`golaunch run --json`",
	reflect.TypeFor[report.Goodput]():      "`golaunch status --json`",
	reflect.TypeFor[report.Saves]():        "`golaunch status --json`",
	reflect.TypeFor[report.Cost]():         "`golaunch status --json`",
	reflect.TypeFor[listing.Job]():         "`golaunch status --json`",
	reflect.TypeFor[listing.Node]():        "`golaunch status --json`",
	reflect.TypeFor[listing.Coordinator](): "`golaunch status --json`",
	reflect.TypeFor[report.Start]():        "`golaunch explain --start --json`",
	reflect.TypeFor[report.StartPhase]():   "`golaunch explain --start --json`",
	reflect.TypeFor[report.Module]():       "`golaunch explain --start --json`",
	reflect.TypeFor[report.Workspace]():    "`golaunch status --json`",
}

// opaque has types whose JSON does not have the type's fields: the fields of a failure are checked
// in its JSON, and the other values are texts.
var opaque = map[reflect.Type]bool{
	reflect.TypeFor[time.Time]():       true,
	reflect.TypeFor[netip.Addr]():      true,
	reflect.TypeFor[report.Failure]():  true,
	reflect.TypeFor[launcher.Stacks](): true,
	reflect.TypeFor[fold.Ranks]():      true,
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// TestContractOfTypes checks that the output of golaunch keeps the rules of docs/json.md, and that
// this page names each field and no other field.
func TestContractOfTypes(t *testing.T) {
	c := checker{t: t, named: map[string]map[string]bool{}, walked: map[reflect.Type]string{}}
	for _, o := range outputs {
		c.walk(o.section, reflect.TypeOf(o.record).Elem())
		fill(reflect.ValueOf(o.record).Elem())
		if w, ok := o.record.(*jsonout.Words); ok {
			result := report.Result{}
			fill(reflect.ValueOf(&result).Elem())
			w.Result = result
			c.walk(o.section, reflect.TypeOf(result))
		}
		for _, r := range []jsonout.Record{o.record, reflect.New(reflect.TypeOf(o.record).Elem()).Interface().(jsonout.Record)} {
			text, err := jsonout.Line(r)
			if err != nil {
				t.Fatalf("%T: %v", r, err)
			}
			if err := checkJSON(text); err != nil {
				t.Errorf("%T: %v in %s", r, err, text)
			}
		}
	}
	c.name(elsewhere[reflect.TypeFor[report.Failure]()], keysOf(t, report.Failure{Rank: 1})...)
	c.walk(elsewhere[reflect.TypeFor[report.Failure]()], reflect.TypeFor[report.Verdict]())
	c.name("events.jsonl", "detail")
	c.walk("`golaunch stacks --json`", reflect.TypeFor[stacks.Tree]())
	c.name("`golaunch stacks --json`", "silent_nodes")
	c.docs()
}

// TestContractIsWhole checks that outputs has all types that can be printed.
func TestContractIsWhole(t *testing.T) {
	listed := map[string]bool{}
	for _, o := range outputs {
		listed[reflect.TypeOf(o.record).Elem().Name()] = true
	}
	for _, dir := range []string{".", "internal/*", "../../internal/wire/jsonout"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && embedsHeader(s) && !listed[n.Name.Name] {
						t.Errorf("%s: %s is not in outputs", name, n.Name.Name)
					}
				case *ast.CompositeLit:
					if s, ok := n.Type.(*ast.StructType); ok && embedsHeader(s) {
						t.Errorf("%s: an output without a name", name)
					}
				}
				return true
			})
		}
	}
}

// embedsHeader reports whether a struct can be printed.
func embedsHeader(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		switch x := f.Type.(type) {
		case *ast.SelectorExpr:
			return len(f.Names) == 0 && x.Sel.Name == "Header"
		case *ast.Ident:
			return len(f.Names) == 0 && x.Name == "Header"
		}
		return false
	})
}

// checker collects the names of fields by section.
type checker struct {
	t      *testing.T
	named  map[string]map[string]bool
	walked map[reflect.Type]string
}

func (c checker) name(section string, names ...string) {
	if c.named[section] == nil {
		c.named[section] = map[string]bool{}
	}
	for _, name := range names {
		c.named[section][name] = true
	}
}

// walk checks the fields of a type and of the types in it, and notes their names.
func (c checker) walk(section string, typ reflect.Type) {
	if s := elsewhere[typ]; s != "" {
		section = s
	}
	if opaque[typ] || c.walked[typ] == section {
		return
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		c.walk(section, typ.Elem())
		return
	case reflect.Map:
		if typ != reflect.TypeFor[map[string]string]() {
			c.t.Errorf("%v: a map has texts alone", typ)
		}
		return
	case reflect.Struct:
	default:
		return
	}
	c.walked[typ] = section // noted before the walk, since a tree has nodes of its own type
	for _, f := range reflect.VisibleFields(typ) {
		if f.Anonymous || f.PkgPath != "" {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		where := fmt.Sprintf("%v.%s (%q)", typ, f.Name, name)
		switch kind := f.Type.Kind(); {
		case !snakeCase.MatchString(name):
			c.t.Errorf("%s has no name in snake_case", where)
		case isDuration(f.Type) && !strings.HasSuffix(name, "_seconds"):
			c.t.Errorf("%s: a duration ends in _seconds", where)
		case strings.HasSuffix(name, "_seconds") && !isDuration(f.Type) && kind != reflect.Float64:
			c.t.Errorf("%s: only a duration or a number of seconds ends in _seconds", where)
		case options != "" && !opaque[f.Type] && (kind == reflect.Slice || kind == reflect.Map || kind == reflect.Bool):
			c.t.Errorf("%s may be left out", where)
		case kind == reflect.Interface && typ.PkgPath() != reflect.TypeFor[jsonout.Words]().PkgPath():
			c.t.Errorf("%s may be anything", where)
		}
		if name != "format_version" {
			c.name(section, name)
		}
		c.walk(section, f.Type)
	}
}

func isDuration(typ reflect.Type) bool {
	return typ == reflect.TypeFor[time.Duration]() || typ == reflect.TypeFor[*time.Duration]()
}

// docs compares the fields with docs/json.md: each is named in its section, and the first cell of a
// row names nothing else.
func (c checker) docs() {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		c.t.Fatal(err)
	}
	if want := fmt.Sprintf("Its version is %d.", jsonout.Version); !strings.Contains(string(text), want) {
		c.t.Errorf("docs/json.md does not say: %s", want)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(part, "\n")
		sections[title] = body
	}
	quoted := regexp.MustCompile("`([a-z0-9_]+)`")
	for section, names := range c.named {
		body, ok := sections[section]
		if !ok {
			c.t.Errorf("docs/json.md has no section %s", section)
		}
		for name := range names {
			if !strings.Contains(body, "`"+name+"`") {
				c.t.Errorf("docs/json.md does not name %s in %s", name, section)
			}
		}
		for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(body, -1) {
			for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
				if !names[name[1]] {
					c.t.Errorf("docs/json.md names %s in %s, which no output has there", name[1], section)
				}
			}
		}
	}
}

// keysOf returns the names of the fields of a value in which every field is set.
func keysOf[T any](t *testing.T, v T) (keys []string) {
	t.Helper()
	fill(reflect.ValueOf(&v).Elem())
	text, err := jsonout.Marshal(v)
	var fields map[string]any
	if err := errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
		t.Fatal(err)
	}
	for key := range fields {
		keys = append(keys, key)
	}
	return keys
}

// fill sets every field to something.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(1_700_000_000, 123_456_789)
		return
	case *netip.Addr:
		*x = netip.MustParseAddr("fd00::7")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field)
			} else if field.Kind() == reflect.Struct {
				for _, inner := range field.Fields() { // fields of an embedded struct
					if inner.CanSet() {
						fill(inner)
					}
				}
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"A Key": "x"}))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Uint32:
		v.SetUint(7)
	case reflect.Interface:
	default:
		v.SetInt(7)
	}
}

// checkJSON checks that a text is a sequence of objects that keep the rules of docs/json.md.
func checkJSON(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	for n := 0; ; n++ {
		var v map[string]any
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case err != nil:
			return err
		case v["format_version"] != float64(jsonout.Version):
			return fmt.Errorf("format_version is %v", v["format_version"])
		}
		if err := checkValue("", v); err != nil {
			return err
		}
	}
}

var contractTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)

func checkValue(name string, v any) error {
	switch v := v.(type) {
	case nil:
		return fmt.Errorf("%s is null", name)
	case string:
		_, err := time.Parse(time.RFC3339Nano, v)
		if isTime := slices.Contains([]string{"time", "at", "since", "submitted", "finished", "until"}, name); (err == nil || isTime) &&
			!contractTime.MatchString(v) {
			return fmt.Errorf("%s is %q", name, v)
		}
	case []any:
		for _, x := range v {
			if err := checkValue(name, x); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, x := range v {
			_, number := x.(float64)
			switch {
			case name == "labels" || name == "versions":
			case !snakeCase.MatchString(key):
				return fmt.Errorf("%q is not in snake_case", key)
			case strings.HasSuffix(key, "_seconds") && !number:
				return fmt.Errorf("%s is %v", key, x)
			}
			if err := checkValue(key, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// objects is a word of scripts: the output has objects of the contract, and nothing else.
func objects(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := ts.ReadFile(name)
		if err := checkJSON([]byte(text)); err != nil {
			ts.Fatalf("%s: %v in:\n%s", name, err, text)
		}
	}
}

// TestJSONOnACluster: each verb that asks a coordinator prints its object, or its error.
func TestJSONOnACluster(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	head := h.start(0, "coordinator", "--listen", "10.77.0.2", "--json")
	head.line(`^\{"format_version":1,"address":"10.77.0.2:29400","peers":\[\],"pid":\d+\}$`)
	agents := []*process{h.join(1, "n10", 1), h.start(2, "agent", "--coordinator", h.at, "--name", "n9", "--num-gpus", "1", "--json")}
	agents[1].line(`^\{"format_version":1,"time":".*","reason":"n9 .* is in the cluster of `)
	has := func(text string, want ...string) {
		t.Helper()
		if err := checkJSON([]byte(text)); err != nil {
			t.Errorf("%v in %s", err, text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %s in %s", w, text)
			}
		}
	}
	has(h.do("run", "--detach", "--json", "--job-id", "a", "--nodes", "2", "--gpus-per-node", "1", "--", "sh", "-c", hung), `"job": "a"`)
	logs := h.start(0, "logs", "a", "-f", "--json")
	logs.line(`^\{"format_version":1,"node":".*","rank":1,"attempt":0,"stream":"stdout","text":"up 1"\}$`)
	has(h.do("status", "--json"), `"coordinators": []`, `"labels": {`, `"holds": [`, `"excluded": []`, `"phase": "running"`, `"costs": []`)
	has(h.do("jobs", "--json"), `"id": "a"`)
	has(h.do("cost", "--json"), `"users": [`, `"idle": [`, `"job": "a"`, `"node_hours": `)
	has(h.do("stop", "a", "--json"), `"stopped": [`)
	has(ended(t, logs))
	has(h.do("status", "a", "--json"), `"code": 143`, `"ending": "cancelled"`, `"finished": "`)
	has(h.do("agent", "--drain", "--name", "n9", "--json"), `"jobs": []`)
	agents[1].ends(0)
	has(h.do("swap", "n10", "--json"), `"node": "n10"`)
	has(h.do("status", "--json"), `"nodes": []`, `"jobs": []`)
	for _, args := range [][]string{{"status", "b"}, {"logs", "b"}, {"stop", "b"}, {"swap", "n10"}} {
		code, text := h.start(0, append(args, "--json")...).wait()
		if code != 2 {
			t.Errorf("%v ends with %d", args, code)
		}
		has(text, `"error":{"kind":"not_there","code":2,"verb":"`+args[0]+`"`)
	}
	head.signal(syscall.SIGTERM)
	_, text := head.wait()
	has(text)
	code, text := h.start(0, "status", "--coordinator", h.at, "--json").wait()
	if code != cli.ExitFailure {
		t.Errorf("status ends with %d", code)
	}
	has(text, `"error":{"kind":"failure","code":125,"verb":"status","message":"`)
}
