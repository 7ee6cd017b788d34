// Package munge seals short texts on one node of a cluster and opens them on another, which learns
// the user who sealed them. It calls munge and unmunge, programs of the munged daemon that Slurm
// uses too (munge(7)).
package munge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

const (
	// limit bounds one call.
	limit = 10 * time.Second
	// ttl is the life time of a credential in seconds.
	ttl = 60
)

// Installed reports whether this machine has munge's programs, even if its daemon does not run.
func Installed() bool {
	_, err := exec.LookPath("munge")
	return err == nil
}

// Encode seals a text so that only processes of the same user, on machines with the same munge key,
// can open it. Each machine can open it once, within a minute.
func Encode(ctx context.Context, text string) (credential string, err error) {
	out, err := run(ctx, text, "munge", "--restrict-uid="+strconv.Itoa(os.Getuid()), "--ttl="+strconv.Itoa(ttl))
	return strings.TrimSpace(out), err
}

// Sign seals a public text: any user can open it, and learns which user sealed it.
func Sign(ctx context.Context, text string) (credential string, err error) {
	out, err := run(ctx, text, "munge", "--ttl="+strconv.Itoa(ttl))
	return strings.TrimSpace(out), err
}

// Decode opens a text that the same user sealed on any machine. A credential of another user is an
// error.
func Decode(ctx context.Context, credential string) (text string, err error) {
	text, uid, err := Open(ctx, credential)
	if err == nil && uid != uint32(os.Getuid()) {
		return "", fmt.Errorf("a credential of uid %d was given to uid %d", uid, os.Getuid())
	}
	return text, err
}

// Open opens a text that a user sealed on any machine, and returns that user.
func Open(ctx context.Context, credential string) (text string, uid uint32, err error) {
	out, err := run(ctx, credential, "unmunge", "--keys=STATUS,UID")
	head, text, ok := strings.Cut(out, "\n\n")
	if status := verdict.Get().FindStringSubmatch(head); err != nil && status != nil {
		return "", 0, fmt.Errorf("unmunge: %s", status[1])
	}
	if err != nil {
		return "", 0, err
	}
	if said := sealer.Get().FindStringSubmatch(head); ok && said != nil {
		number, err := strconv.ParseUint(said[1], 10, 32)
		return text, uint32(number), err
	}
	return "", 0, fmt.Errorf("unmunge does not say who made a credential: %q", head)
}

var (
	verdict = lazyregexp.New(`(?m)^STATUS:\s+(.+)$`)
	sealer  = lazyregexp.New(`(?m)^UID:\s.*\(([0-9]+)\)$`)
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
		err = errors.New(said) // the text starts with the program's name
	} else if err != nil {
		err = fmt.Errorf("%s: %w", program, err)
	}
	return out.String(), err
}

// socket is the path of munged's socket if Slurm's configuration changes it (slurm.conf(5),
// AuthInfo).
func socket() string {
	text, err := os.ReadFile(os.Getenv("SLURM_CONF"))
	if err != nil {
		return ""
	}
	if match := authInfo.Get().FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

var authInfo = lazyregexp.New(`(?im)^[ \t]*AuthInfo[ \t]*=.*\bsocket=([^,\s]+)`)
