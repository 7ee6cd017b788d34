// Plot makes the plots and tables of the documents from the measurements of tools/bench, so that
// they always agree:
//
//	go run -C tools/bench ./plot
//
// It writes docs/performance/*.svg, and the text between `<!-- measured: NAME -->` and `<!-- end
// -->` in the documents that have such marks.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/tools/bench/record"
)

func main() {
	err := record.ChangeToRoot()
	if err == nil {
		err = write(".")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// data has the record, and plots the SVGs.
const (
	data  = "docs/performance/peers.json"
	plots = "docs/performance"
)

// documents are the documents with tables.
var documents = []string{"README.md", "docs/performance.md", "docs/preload.md"}

func write(root string) error {
	files, err := render(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil { //nolint:gosec // documents
			return err
		}
	}
	return nil
}

// render returns all files that it makes, by their names within the repository.
func render(root string) (map[string][]byte, error) {
	rec, err := record.Read(filepath.Join(root, data))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, g := range record.Groups {
		if text := plot(rec, g); text != nil {
			files[filepath.Join(plots, g.ID+".svg")] = text
		}
	}
	parts := parts(rec)
	used := map[string]bool{}
	for _, name := range documents {
		old, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		text, err := fill(string(old), parts, used)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = []byte(text)
	}
	for part := range parts {
		if !used[part] {
			return nil, fmt.Errorf("no document has <!-- measured: %s -->", part)
		}
	}
	return files, nil
}

var mark = regexp.MustCompile(`(?s)<!-- measured: ([a-z-]+) -->\n.*?<!-- end -->\n`)

// fill puts the parts between a document's marks.
func fill(text string, parts map[string]string, used map[string]bool) (string, error) {
	var unknown []string
	text = mark.ReplaceAllStringFunc(text, func(old string) string {
		name := mark.FindStringSubmatch(old)[1]
		part, ok := parts[name]
		if !ok {
			unknown = append(unknown, name)
		}
		used[name] = true
		return fmt.Sprintf("<!-- measured: %s -->\n%s<!-- end -->\n", name, part)
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("nothing that is measured is called %s", strings.Join(slices.Compact(unknown), ", "))
	}
	return text, nil
}
