// Release tags the commit that is checked out as a version, once everything agrees with the version
// and every test has passed:
//
//	go run ./release -version 1.2.0
//
// The tree is clean, the version can follow the version of the last tag, and
// internal/wire/version/VERSION has it. CHANGELOG.md has a section for the version and nothing
// unreleased. The number shows how the API for Go programs changed
// (https://go.dev/doc/modules/version-numbers): a removal needs a new major version, or a new minor
// version before 1.0.0. Then it runs .ci/run test-all, tags the commit, and makes dist/. Nothing
// leaves this machine.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

const root = "../.."

func main() {
	next := flag.String("version", "", "the version to tag, such as 1.2.0")
	check := flag.Bool("check", false, "check only: run no tests, and tag nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := release(ctx, root, *next, *check); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(ctx context.Context, root, next string, check bool) error {
	v, err := parse(next)
	if err != nil {
		return err
	}
	if err := clean(ctx, root); err != nil {
		return err
	}
	last, err := tagged(ctx, root)
	if err != nil {
		return err
	}
	if last != "" {
		before, err := parse(strings.TrimPrefix(last, "v"))
		if err != nil {
			return err
		}
		if err := v.follows(before); err != nil {
			return err
		}
		taken, err := broken(ctx, root, last)
		if err != nil {
			return err
		}
		if taken != "" && !v.breaks(before) {
			return fmt.Errorf("version %s may take nothing from programs that are written for %s, and these would not compile any more:\n%s", next, last, taken)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if err := logged(string(text), next); err != nil {
		return err
	}
	said, err := os.ReadFile(filepath.Join(root, versionFile))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(said)) != next {
		return fmt.Errorf("%s says %s: write %s there", versionFile, strings.TrimSpace(string(said)), next)
	}
	if check {
		return nil
	}
	if err := run(ctx, root, ".ci/run", "test-all"); err != nil {
		return err
	}
	if err := clean(ctx, root); err != nil {
		return err
	}
	if err := run(ctx, root, "git", "tag", "-a", "v"+next, "-m", "golaunch "+next); err != nil {
		return err
	}
	return run(ctx, root, "make", "dist")
}

// versionFile has the version if there is no tag.
const versionFile = "internal/wire/version/VERSION"

// version is a semantic version (https://semver.org), without the text that may follow its three
// numbers.
type version struct {
	numbers [3]int
	preview string
}

var form = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-(rc\.[1-9]\d*))?$`)

func parse(text string) (v version, err error) {
	m := form.FindStringSubmatch(text)
	if m == nil {
		return v, fmt.Errorf("%q is no version: give X.Y.Z, or X.Y.Z-rc.N", text)
	}
	for i := range v.numbers {
		if v.numbers[i], err = strconv.Atoi(m[i+1]); err != nil {
			return v, fmt.Errorf("%q is no version: %w", text, err)
		}
	}
	v.preview = m[4]
	return v, nil
}

// follows reports whether no version is omitted between two versions.
func (v version) follows(last version) error {
	a, b := last.numbers, v.numbers
	next := b == [3]int{a[0], a[1], a[2] + 1} || b == [3]int{a[0], a[1] + 1, 0} || b == [3]int{a[0] + 1, 0, 0}
	same := a == b && last.preview != "" && (v.preview == "" || cmp.Compare(len(v.preview), len(last.preview)) > 0 || len(v.preview) == len(last.preview) && v.preview > last.preview)
	if next || same {
		return nil
	}
	return fmt.Errorf("version %v is no next one of %v", b, a)
}

// breaks reports whether a version may remove something.
func (v version) breaks(last version) bool {
	return v.numbers[0] > last.numbers[0] || v.numbers[0] == 0 && v.numbers[1] > last.numbers[1]
}

// logged requires a section of the version, with its day and some text, below an empty section of
// unreleased changes.
func logged(text, next string) error {
	_, rest, found := strings.Cut(text, "\n## Unreleased\n")
	if !found {
		return errors.New("CHANGELOG.md has no section Unreleased")
	}
	unreleased, rest, found := strings.Cut(rest, "\n## ")
	if strings.TrimSpace(unreleased) != "" {
		return fmt.Errorf("CHANGELOG.md has changes in Unreleased: give them the heading ## %s - YYYY-MM-DD", next)
	}
	heading, body, _ := strings.Cut(rest, "\n")
	body, _, _ = strings.Cut(body, "\n## ")
	if !found || !regexp.MustCompile(`^`+regexp.QuoteMeta(next)+` - \d{4}-\d\d-\d\d$`).MatchString(heading) || strings.TrimSpace(body) == "" {
		return fmt.Errorf("the first section of CHANGELOG.md below Unreleased is %q: it has to be %s - YYYY-MM-DD, and to say what changed", heading, next)
	}
	return nil
}

func clean(ctx context.Context, root string) error {
	out, err := output(ctx, root, "git", "status", "--porcelain")
	if err == nil && out != "" {
		err = fmt.Errorf("the tree has changes that are in no commit:\n%s", out)
	}
	return err
}

// tagged returns the last version before this commit; empty before the first.
func tagged(ctx context.Context, root string) (string, error) {
	tags, err := output(ctx, root, "git", "-c", "versionsort.suffix=-", "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*")
	first, _, _ := strings.Cut(tags, "\n")
	return first, err
}

func run(ctx context.Context, root, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func output(ctx context.Context, root, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var words bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &words
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, words.String())
	}
	return string(out), nil
}
