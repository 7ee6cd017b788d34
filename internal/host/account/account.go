// Package account looks up users of this machine.
package account

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// User is a user of this machine.
type User struct {
	Name, Home, Shell string
	safefile.Rights
}

// limit bounds the wait for a directory service.
const limit = 5 * time.Second

// Find looks up a uid and all groups of the user with getent(1) and id(1), which know users of
// LDAP, SSSD and the like. Package os/user would not do: in a build without cgo it sees only the
// users in /etc/passwd.
func Find(ctx context.Context, uid uint32) (User, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	u, err := entry(ctx, uid)
	if err != nil {
		return User{}, err
	}
	groups, err := run(ctx, "id", "-G", "--", u.Name)
	if err != nil {
		return User{}, fmt.Errorf("cannot tell the groups of %s: %w", u.Name, err)
	}
	for word := range strings.FieldsSeq(groups) {
		gid, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return User{}, fmt.Errorf("cannot tell the groups of %s: %w", u.Name, err)
		}
		u.Groups = append(u.Groups, uint32(gid))
	}
	return u, nil
}

// Name is the name of a uid.
func Name(ctx context.Context, uid uint32) (string, error) {
	u, err := entry(ctx, uid)
	return u.Name, err
}

// entry looks up a user, but not the user's groups.
func entry(ctx context.Context, uid uint32) (User, error) {
	line, err := run(ctx, "getent", "passwd", strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return User{}, fmt.Errorf("uid %d is no user here: %w", uid, err)
	}
	return parse(line, uid)
}

// Home is the home directory of this process's user: HOME, or if it is unset, as in a daemon,
// the entry in the user database.
func Home() (string, error) {
	home, undefined := os.UserHomeDir()
	if undefined == nil {
		return home, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	uid := uint32(os.Getuid())
	line, err := run(ctx, "getent", "passwd", strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "", fmt.Errorf("%w, and uid %d is no user here: %w", undefined, uid, err)
	}
	u, err := parse(line, uid)
	if err == nil && !filepath.IsAbs(u.Home) {
		err = fmt.Errorf("%w, and %s has no home directory in the user database", undefined, u.Name)
	}
	return u.Home, err
}

// parse reads a line of passwd(5), which must be the line of the uid.
func parse(line string, uid uint32) (User, error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(f) != 7 || f[0] == "" || strings.Contains(line, "\x00") || strings.Count(line, "\n") > 1 {
		return User{}, fmt.Errorf("uid %d is no user here: %q is no line of passwd(5)", uid, line)
	}
	number, err := strconv.ParseUint(f[2], 10, 32)
	if err != nil || uint32(number) != uid {
		return User{}, fmt.Errorf("uid %d was asked for, and found was %q", uid, line)
	}
	gid, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		return User{}, fmt.Errorf("uid %d is in no group: %q", uid, line)
	}
	return User{Name: f[0], Home: f[5], Shell: f[6], Rights: safefile.Rights{UID: uid, GID: uint32(gid)}}, nil
}

func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	switch said := strings.TrimSpace(complaint.String()); {
	case err != nil && said != "":
		return "", fmt.Errorf("%s: %w: %.200s", program, err, said)
	case err != nil:
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return string(out), nil
}

// Environ turns this process's environment into another user's: without variables of the session
// and the home, and with the variables that login(1) sets.
func (u User) Environ(env []string) []string {
	mine := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(personal, func(p string) bool {
			prefix, is := strings.CutSuffix(p, "*")
			return name == p || is && strings.HasPrefix(name, prefix)
		})
	})
	return append(mine, "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name, "SHELL="+u.Shell)
}

var personal = []string{
	"HOME", "USER", "LOGNAME", "SHELL", "MAIL", "XDG_*", "SUDO_*", "SSH_*", "DBUS_SESSION_BUS_ADDRESS", "KRB5CCNAME", "CREDENTIALS_DIRECTORY",
}
