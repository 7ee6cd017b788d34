// Package munge seals short secrets for the same user on other nodes of a cluster, with the munged that Slurm's own daemons use
// (munge(7)). It calls the programs munge and unmunge, which come with it.
package munge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// limit bounds one call.
	limit = 10 * time.Second
	// ttl is how long a credential may be on its way, in seconds.
	ttl = 60
)

// Installed says that this machine has munge's programs, whether or not its daemon runs.
func Installed() bool {
	_, err := exec.LookPath("munge")
	return err == nil
}

// Encode seals a text so that only processes of the same user, on machines with the same munge key, can open it, once on each and
// within a minute.
func Encode(ctx context.Context, text string) (credential string, err error) {
	out, err := run(ctx, text, "munge", "--restrict-uid="+strconv.Itoa(os.Getuid()), "--ttl="+strconv.Itoa(ttl))
	return strings.TrimSpace(out), err
}

// Decode opens what the same user has sealed, elsewhere or here. A credential of another user is an error.
func Decode(ctx context.Context, credential string) (text string, err error) {
	out, err := run(ctx, credential, "unmunge", "--keys=STATUS,UID")
	head, text, ok := strings.Cut(out, "\n\n")
	if status := verdict.FindStringSubmatch(head); err != nil && status != nil {
		return "", fmt.Errorf("unmunge: %s", status[1])
	}
	if err != nil {
		return "", err
	}
	uid := sealer.FindStringSubmatch(head)
	switch {
	case !ok || uid == nil:
		return "", fmt.Errorf("unmunge does not say who made a credential: %q", head)
	case uid[1] != strconv.Itoa(os.Getuid()):
		return "", fmt.Errorf("a credential of uid %s was given to uid %d", uid[1], os.Getuid())
	}
	return text, nil
}

var (
	verdict = regexp.MustCompile(`(?m)^STATUS:\s+(.+)$`)
	sealer  = regexp.MustCompile(`(?m)^UID:\s.*\(([0-9]+)\)$`)
)

func run(ctx context.Context, input, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if s := socket(); s != "" {
		args = append(args, "--socket="+s)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaint
	err := cmd.Run()
	if said := strings.TrimSpace(complaint.String()); err != nil && said != "" {
		err = errors.New(said) // it begins with the program's name
	} else if err != nil {
		err = fmt.Errorf("%s: %w", program, err)
	}
	return out.String(), err
}

// socket is where Slurm is told to find munged, when that is not munge's own default (slurm.conf(5), AuthInfo).
func socket() string {
	text, err := os.ReadFile(os.Getenv("SLURM_CONF"))
	if err != nil {
		return ""
	}
	if match := authInfo.FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

var authInfo = regexp.MustCompile(`(?im)^[ \t]*AuthInfo[ \t]*=.*\bsocket=([^,\s]+)`)
