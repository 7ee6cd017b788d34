package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// charted is the chart's version in the repository. The release's version replaces it.
const charted = "0.0.0"

// chart makes the Helm chart as helm package would make it.
func (r *release) chart() error {
	var files []file
	root := os.DirFS("chart")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if filepath.Base(path) == "Chart.yaml" {
			if strings.Count(string(body), charted) != 2 {
				return fmt.Errorf("%s has not the version %s as its version and its appVersion", path, charted)
			}
			body = []byte(strings.ReplaceAll(string(body), charted, r.version))
		}
		files = append(files, file{path, 0o644, body})
		return nil
	})
	if err != nil {
		return err
	}
	return r.write(filepath.Join(r.out, "golaunch-"+strings.ReplaceAll(r.version, "+", ".")+".tgz"), func(w io.Writer) error { return zipped(w, files, r.at) })
}
