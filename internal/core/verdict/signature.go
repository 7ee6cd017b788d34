package verdict

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/golaunch/golaunch/launcher/report"
)

// varying matches text that differs between ranks, nodes and attempts that fail in the same way:
// addresses, UUIDs and hashes, the random names of Python's tempfile, and all numbers, with the
// characters that join numbers in dates, times, versions and addresses.
var varying = later(`0x[0-9a-fA-F]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\btmp[a-z0-9_]{8}\b|` +
	`\b[0-9a-f]*[0-9][0-9a-f]*[a-f][0-9a-f]{6,}\b|[0-9]+(?:[-.:,/T ]+[0-9]+)*(?:Z|ms|s|\b)?`)

// frame matches a frame of a traceback, with its file, line and function.
var frame = later(`(?m)^(?:\[[^\[\]\n]{1,40}\]:? ?)* *File "([^"\n]{1,400})", line (\d+)(?:, in (\S{1,100}))?`)

// maxSignature bounds a signature, and maxLine the part of the deciding line that is read, in
// bytes.
const (
	maxSignature = 400
	maxLine      = 4 << 10
)

// Signature names a failure by its cause, the place where a Python program raised it, and the
// deciding line without the parts that differ between ranks, nodes and attempts. For an
// unrecognized failure, it uses how the program exited and its last line instead. Two failures with
// the same signature count as the same.
func Signature(f report.Failure, own ...Rule) string {
	v := Judge(f, own...)
	line := wholeLine(f, v)
	if v.Cause == Unknown {
		v.Cause, line = fmt.Sprintf("%s %d %d", v.Cause, f.Exit.Code, f.Exit.Signal), lastWords(f)
	}
	if f.Node != "" {
		line = strings.ReplaceAll(line, f.Node, "#")
	}
	sig := v.Cause + " " + place(f) + " " + unmarked(varying().ReplaceAllString(line, "#"))
	return strings.ToValidUTF8(sig[:min(len(sig), maxSignature)], "")
}

// lastWords returns the last line that may be about a failure. It skips routine log lines.
func lastWords(f report.Failure) string {
	lines := strings.Split(f.Tail, "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(line)
		if line = line[:min(len(line), maxLine)]; line != "" && !routine().MatchString(line) {
			return line
		}
	}
	return ""
}

// routine matches the marks that loggers put on lines that are not errors, and the mark that Python
// puts on warnings. It also matches a progress bar, which overwrites itself.
var routine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(debug|info|warn|warning|[a-z]*warning):|\[(debug|info|warn|warning)\]|^(debug|info|warn|warning)\b|[- |](debug|info|warn|warning)[- |]|\bwarnings?\.warn\(|\r|[0-9]+%\|`)
})

// wholeLine returns the whole deciding line, because numbers in the line decide where a quote of it
// is cut. Of a very long line it returns only the beginning.
func wholeLine(f report.Failure, v report.Verdict) string {
	from := map[report.Source]string{report.FromTail: f.Tail, report.FromTraceback: f.Traceback, report.FromKernel: f.Kernel}
	body, ok := from[v.From]
	if !ok {
		return v.Quote
	}
	t := read(v.From, body)
	line := t.body
	for n := t.skipped + 1; n < v.Line; n++ {
		_, line, _ = strings.Cut(line, "\n")
	}
	line, _, _ = strings.Cut(line, "\n")
	return strings.TrimSpace(line[:min(len(line), maxLine)])
}

// place returns the innermost frame of the last traceback, such as train.py:12:step. The result
// omits the file's folder, which may differ between nodes.
func place(f report.Failure) string {
	for _, t := range []text{read(report.FromTraceback, f.Traceback), read(report.FromTail, f.Tail)} {
		begin := strings.LastIndex(t.body, heading)
		if begin < 0 {
			continue
		}
		if all := frame().FindAllStringSubmatch(t.body[begin:], -1); len(all) > 0 {
			last := all[len(all)-1]
			return path.Base(last[1]) + ":" + last[2] + ":" + last[3]
		}
	}
	return "-"
}
