//go:build ignore

// Lazy makes the generated code register its messages when one is first encoded, decoded or
// described, instead of when the program starts. Registration costs a process a millisecond, and
// most processes encode no message.
package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
)

// edits change the output of protoc-gen-go. Each must match in every file.
var edits = []struct {
	find *regexp.Regexp
	with string
}{
	{ // an initializer would make the slice
		regexp.MustCompile(`(?m)^var (file_\w+)_msgTypes = (make\(\[\]protoimpl\.MessageInfo, \d+\))$`),
		"var ${1}_msgTypes []protoimpl.MessageInfo\n\nfunc ${1}_make() { ${1}_msgTypes = $2 }\n",
	},
	{
		regexp.MustCompile(`(?m)^func init\(\) \{ (file_\w+)_init\(\) \}$`),
		"var ${1}_once sync.Once\n\nfunc ${1}_load() { ${1}_once.Do(func() { ${1}_make(); ${1}_init() }) }\n",
	},
	{regexp.MustCompile(`(?m)^\tmi := &(file_\w+)_msgTypes\[`), "\t${1}_load()\n$0"},
}

// dependency matches the registration of another file, which must come first.
var dependency = regexp.MustCompile(`(?m)^\t(file_\w+)_init\(\)$`)

func main() {
	files, err := filepath.Glob("*.pb.go")
	if err != nil {
		panic(err)
	}
	for _, name := range files {
		if matched, _ := filepath.Match("*_grpc.pb.go", name); matched {
			continue
		}
		code, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		for _, e := range edits {
			if !e.find.Match(code) {
				panic(fmt.Sprintf("%s: protoc-gen-go no longer writes %s", name, e.find))
			}
			code = e.find.ReplaceAll(code, []byte(e.with))
		}
		code = dependency.ReplaceAll(code, []byte("\t${1}_load()"))
		if code, err = format.Source(code); err != nil {
			panic(err)
		}
		if err := os.WriteFile(name, code, 0o644); err != nil {
			panic(err)
		}
	}
}
