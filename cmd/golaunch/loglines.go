package main

import (
	"bytes"
	"io"
	"iter"

	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher"
)

// What golaunch logs prints as JSON: lines of ranks, and what is missing. docs/json.md is its contract.
type (
	lineShown struct {
		jsonout.Header
		Node    string `json:"node"`
		Rank    int    `json:"rank"`
		Attempt int    `json:"attempt"`
		Stream  string `json:"stream"`
		Text    string `json:"text"`
	}
	missingShown struct {
		jsonout.Header
		Missing string `json:"missing"`
	}
)

// maxLine bounds a line in bytes; what is longer is several.
const maxLine = 1 << 20

// lines joins the pieces that a reader has into lines.
type lines struct {
	out io.Writer
	// open has, for each file, the begin of a line.
	open map[lineShown][]byte
}

// printLines prints a job's output as JSON, one object a line, and returns whether some is missing.
func printLines(chunks iter.Seq2[launcher.LogChunk, error], w io.Writer) (missing bool, err error) {
	l := lines{w, map[lineShown][]byte{}}
	for chunk, err := range chunks {
		if err == nil && chunk.Missing != "" {
			missing, err = true, l.write(&missingShown{Missing: chunk.Missing})
		} else if err == nil {
			file := lineShown{Node: chunk.Node, Rank: chunk.Rank, Attempt: chunk.Attempt, Stream: "stdout"}
			if chunk.Stream == 2 {
				file.Stream = "stderr"
			}
			err = l.add(file, chunk.Data)
		}
		if err != nil {
			return missing, err
		}
	}
	return missing, l.end()
}

func (l lines) add(file lineShown, data []byte) error {
	rest := append(l.open[file], data...)
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole && len(rest) < maxLine {
			l.open[file] = rest
			return nil
		}
		if err := l.print(file, line); err != nil {
			return err
		}
		rest = after
	}
}

// end prints what has no end of its own.
func (l lines) end() error {
	for file, text := range l.open {
		if len(text) > 0 {
			if err := l.print(file, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l lines) print(file lineShown, text []byte) error {
	file.Text = string(text)
	return l.write(&file)
}

func (l lines) write(r jsonout.Record) error {
	line, err := jsonout.Line(r)
	if err == nil {
		_, err = l.out.Write(line)
	}
	return err
}
