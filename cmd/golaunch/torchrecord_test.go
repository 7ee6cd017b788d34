package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	torchPrograms = "testdata/torchcases"
	torchAnswers  = "testdata/torchruns"
)

// recordTorch makes the tests run torchrun and record its answers. torchrun also runs for
// suite.All.
var recordTorch = flag.Bool("record", false, "have TestTorchCases run torchrun itself, and write its answers to "+torchAnswers)

const howToRecord = "run go test ./cmd/golaunch -run TestTorchCases -record with that torch's Python in " + testPython

// A torchAnswer is the result of a case, and the standard error of its first command; a recorded
// answer has only the part of the standard error that the case looks for.
type torchAnswer struct {
	Shows string `json:"shows"`
	Says  string `json:"says,omitempty"`
}

// A torchRecording has the answers of the torchrun of one version of torch.
type torchRecording struct {
	Torch string `json:"torch"`
	// Programs is a digest of the files that the cases run.
	Programs string                 `json:"programs"`
	Answers  map[string]torchAnswer `json:"answers"`

	mu sync.Mutex
}

// key is the question of a case.
func (c *torchCase) key() string {
	words := slices.Concat([]string{c.file, c.tests + ":"}, c.env, []string{"torchrun"}, c.nodes, c.args)
	return strings.Join(words, " ")
}

// torchRecordings returns the recordings of all versions.
func torchRecordings(t *testing.T) (all []*torchRecording) {
	t.Helper()
	if *recordTorch {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(torchAnswers, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no recording of torchrun's answers (%v): %s", torchAnswers, err, howToRecord)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		r := &torchRecording{}
		if err == nil {
			err = json.Unmarshal(text, r)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, r)
	}
	return all
}

// answer returns torchrun's answer to a case, if torchrun is asked.
func (r *torchRecording) answer(t *testing.T, c *torchCase) (torchAnswer, bool) {
	t.Helper()
	if c.alone || c.lacks != "" && strings.HasSuffix(r.Torch, "debian") {
		return torchAnswer{}, false
	}
	a, ok := r.Answers[c.key()]
	if !ok || r.Programs != digest(t) {
		t.Errorf("the recording of torchrun %s does not have this case, or that of other programs: %s", r.Torch, howToRecord)
	}
	return a, ok
}

func newTorchRecording(t *testing.T, version string) *torchRecording {
	t.Helper()
	return &torchRecording{Torch: version, Programs: digest(t), Answers: map[string]torchAnswer{}}
}

func (r *torchRecording) add(c *torchCase, a torchAnswer) {
	if c.torchSays == "" {
		a.Says = ""
	} else {
		a.Says = regexp.MustCompile(c.torchSays).FindString(a.Says)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Answers[c.key()] = a
}

func (r *torchRecording) write(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	name := filepath.Join(torchAnswers, r.Torch+".json")
	err := encoder.Encode(r)
	if err == nil {
		err = os.MkdirAll(torchAnswers, 0o755)
	}
	if err == nil {
		err = os.WriteFile(name, text.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %d answers", name, len(r.Answers))
}

var digests = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(os.DirFS(torchPrograms), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "__pycache__" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(torchPrograms, name))
		fmt.Fprintf(sum, "%s %d %s\n", name, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
})

// digest returns the digest of all programs of the cases.
func digest(t *testing.T) string {
	t.Helper()
	d, err := digests()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
