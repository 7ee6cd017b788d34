package provider

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/shellword"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
)

// Login has the settings with which ssh logs in to machines of a cloud.
type Login struct {
	// User is the user's name on the machines. If it is empty, golaunch chooses a name, except on
	// AWS, where ssh_config decides.
	User string
	// Key is the file of a private key. PublicKey is its public key, which a new machine gets
	// unless its options name a key. Own says that the user chose the key, and golaunch did not
	// make it.
	Key, PublicKey string
	Own            bool
	// KnownHosts is the file of the machines' host keys. ssh accepts a new machine's key when it
	// first sees it.
	KnownHosts string
}

// NewLogin returns a login with a key. If the cluster's file names no key, the key is a file in
// dir, the directory of the cluster, which golaunch makes at first use.
func NewLogin(ctx context.Context, user, key, dir string) (Login, error) {
	l := newLogin(user, key, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyLimit)
	defer cancel()
	if _, err := os.Stat(l.Key); key == "" && errors.Is(err, fs.ErrNotExist) {
		if _, err = run(ctx, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "golaunch", "-f", l.Key); err != nil {
			return l, err
		}
	}
	err := l.read(ctx)
	return l, err
}

// sampleLogin returns the same login as NewLogin, but makes no key.
func sampleLogin(ctx context.Context, user, key, dir string) (Login, error) {
	l := newLogin(user, key, dir)
	if _, err := os.Stat(l.Key); key == "" && errors.Is(err, fs.ErrNotExist) {
		l.PublicKey = "ssh-ed25519 KEY golaunch"
		return l, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyLimit)
	defer cancel()
	err := l.read(ctx)
	return l, err
}

func newLogin(user, key, dir string) Login {
	l := Login{User: user, Key: key, Own: key != "", KnownHosts: filepath.Join(dir, "known_hosts")}
	if rest, home := strings.CutPrefix(key, "~/"); home {
		l.Key = filepath.Join(os.Getenv("HOME"), rest)
	} else if key == "" {
		l.Key = filepath.Join(dir, "key")
	}
	return l
}

// read reads the public key that belongs to the private key.
func (l *Login) read(ctx context.Context) error {
	out, err := run(ctx, nil, "ssh-keygen", "-y", "-P", "", "-f", l.Key)
	if err != nil {
		return fmt.Errorf("cannot read the private key %s, which must have no passphrase: %w", l.Key, err)
	}
	l.PublicKey = strings.TrimSpace(string(out))
	return nil
}

// keyLimit bounds how long ssh-keygen may take.
const keyLimit = 30 * time.Second

// Args returns ssh's arguments for a machine. ssh knows the machine's host key by the machine's
// tag, since another machine may have had the address before.
func (l Login) Args(tag, addr string) []string {
	args := []string{"-oStrictHostKeyChecking=accept-new", "-oUserKnownHostsFile=" + l.KnownHosts, "-oHostKeyAlias=" + tag}
	if l.Key != "" {
		args = append(args, "-oIdentitiesOnly=yes", "-i", l.Key)
	}
	if l.User != "" {
		addr = l.User + "@" + addr
	}
	return append(args, "--", addr)
}

// ssh runs a script on a machine. The script must contain no secret, since all users of the machine
// can see it.
func (p *Cloud) ssh(ctx context.Context, m Machine, stdin io.Reader, script string) (string, error) {
	args := append(ssh.Options(aliveEvery), fmt.Sprintf("-oConnectTimeout=%d", connectLimit/time.Second))
	args = append(args, p.cfg.Login.Args(m.Tag, m.Private)...)
	out, err := call{stdin: stdin, name: "ssh", args: append(args, "exec sh -c "+shellword.Quote(script))}.run(ctx)
	return strings.TrimSpace(string(out)), err
}

// setupArgument begins the argument of a machine's setup that has its tag.
const setupArgument = "capacity.setup="

// lookScript returns a script that reports the progress of a machine. It looks at the machine's
// processes: the process of the setup later becomes the agent. If there is no process yet, a new
// log counts as a setup that has just begun.
func lookScript(tag string) string {
	return fmt.Sprintf(`
why=$(%[4]s) || { printf 'unfit\n%%s\n' "$why"; exit; }
runs() { grep -qsxz "$1" /proc/[0-9]*/cmdline; }
cd "$HOME/.golaunch/node" 2>/dev/null || { echo none; exit; }
if runs '%[2]s%[3]s'; then echo setup
elif runs '%[1]s%[3]s'; then echo agent
elif [ ! -e log ]; then echo none
elif [ -e failed ] || [ -n "$(find log -mmin +1)" ]; then echo failed
else echo setup
fi
tail -n 1 log 2>/dev/null || :`, strings.ReplaceAll(tagArgument, ".", `\.`), strings.ReplaceAll(setupArgument, ".", `\.`), tag, Fit())
}

// install starts the setup of a machine unless the setup has begun, and reports the progress of the
// machine. An error means that the machine is of no use. If ssh cannot reach the machine yet, there
// is no error.
func (p *Cloud) install(ctx context.Context, m Machine) (string, error) {
	out, err := p.ssh(ctx, m, nil, lookScript(m.Tag))
	if err != nil {
		return err.Error(), nil
	}
	what, line, _ := strings.Cut(out, "\n")
	switch what {
	case "agent":
		return "its agent has started", nil
	case "setup":
		return "setup: " + line, nil
	case "failed":
		return "", fmt.Errorf("its setup has failed: %s", line)
	case "unfit":
		return "", errors.New(line)
	case "none":
	default: // a line that a login shell has printed
		return errNonsense("ssh", []byte(out), errors.New("want none, setup, agent, failed or unfit")).Error(), nil
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(p.pack(w, m.Tag)) }()
	defer func() { _ = r.Close() }() // a pipe's Close never fails
	if _, err = p.ssh(ctx, m, io.MultiReader(strings.NewReader(p.cfg.Token+"\n"), r), installScript(m.Tag)); err != nil {
		return err.Error(), nil
	}
	return "setup has started", nil
}

// Fit is a command of the shell that succeeds where golaunch can run. On a machine of another
// architecture the command prints that, and fails.
func Fit() string {
	want := runtime.GOARCH
	if name, other := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[want]; other { // as in uname(1)
		want = name
	}
	return fmt.Sprintf(`{ [ "$(uname -m)" = %[1]s ] || { echo "its architecture is $(uname -m), and golaunch is for %[1]s"; false; }; }`, want)
}

// installScript returns a script that takes the token and an archive from its standard input, and
// runs the setup in the archive. The script creates the log, which fails if the log exists. So of
// several coordinators that install at the same time, only one runs the setup.
func installScript(tag string) string {
	return fmt.Sprintf(`
umask 077
mkdir -p "$HOME/.golaunch/node" && cd "$HOME/.golaunch/node" || exit
IFS= read -r token
tar -xf - || exit
set -C
: >log || exit 0
set +C
printf '%%s\n' "$token" | setsid sh ./start %[1]s >>log 2>&1 &`, setupArgument+tag)
}

// startScript returns the script that prepares a machine and then becomes the agent. It runs the
// setup commands in login shells, and hides the token from them.
func (p *Cloud) startScript(tag string) string {
	var b strings.Builder
	b.WriteString("IFS= read -r token\nexec </dev/null\nshell=sh\n! command -v bash >/dev/null || shell=bash\n")
	b.WriteString(PlaceScript(p.cfg.Files))
	for _, c := range p.cfg.Setup {
		short := shellword.Quote(fmt.Sprintf("%.60s", strings.ReplaceAll(c, "\n", " ")))
		fmt.Fprintf(&b, "echo %[2]s\n(cd && exec $shell -l -c %[1]s) || { echo exit code $?: %[2]s; : >failed; exit 1; }\n", shellword.Quote(c), short)
	}
	words := p.cfg.Agent.command(tag)
	for i, w := range words {
		words[i] = shellword.Quote(w)
	}
	words[0] = `"$PWD/golaunch"`
	fmt.Fprintf(&b, "GOLAUNCH_TOKEN=$token\nexport GOLAUNCH_TOKEN\nexec $shell -l -c 'cd && exec \"$0\" \"$@\"' %s\n", strings.Join(words, " "))
	return b.String()
}

// PlaceScript returns a script that copies files from an unpacked archive to their targets. The
// first file is files/0 in the archive. If the script cannot copy the files, it makes a file named
// failed.
func PlaceScript(files []File) string {
	var b strings.Builder
	for i, f := range files {
		to := target(f.To)
		fmt.Fprintf(&b, "mkdir -p \"$(dirname %[1]s)\" && if [ -d files/%[2]d ]; then mkdir -p %[1]s && cp -R files/%[2]d/. %[1]s; else cp files/%[2]d %[1]s; fi || "+
			"{ echo cannot write %[1]s >&2; : >failed; exit 1; }\n", to, i)
	}
	return b.String()
}

// target returns the path of a file on the machine, as a word of the shell.
func target(to string) string {
	if rest, home := strings.CutPrefix(to, "~/"); home {
		return `"$HOME"/` + shellword.Quote(rest)
	}
	return shellword.Quote(to)
}

// pack writes an archive of this golaunch, the files and the start script.
func (p *Cloud) pack(w io.Writer, tag string) error {
	a := NewArchive(w)
	a.Text("start", p.startScript(tag))
	a.Add("golaunch", p.cfg.Agent.Golaunch)
	for i, f := range p.cfg.Files {
		a.Add(fmt.Sprintf("files/%d", i), f.From)
	}
	return a.Close()
}

// File is a file or directory that is copied from the path From on this machine to the path To on
// other machines.
type File struct{ To, From string }

// maxFiles bounds the contents of an archive, in bytes.
const maxFiles = 1 << 30

// Archive writes a tar file. After an error it writes nothing more.
type Archive struct {
	// Timeless says that the archive does not record the times of files.
	Timeless bool

	tar  *tar.Writer
	size int64
	err  error
}

// NewArchive returns an archive without members.
func NewArchive(w io.Writer) *Archive { return &Archive{tar: tar.NewWriter(w)} }

// Close ends the archive, and returns the first error.
func (a *Archive) Close() error {
	if a.err == nil {
		a.err = a.tar.Close()
	}
	return a.err
}

// Text adds a file with a text.
func (a *Archive) Text(name, text string) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now(), Format: tar.FormatPAX})
	}
	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// Add adds a file or directory. In a directory, it keeps symbolic links as links, and omits
// devices, pipes and sockets.
func (a *Archive) Add(name, from string) {
	if a.err != nil {
		return
	}
	if real, err := filepath.EvalSymlinks(from); err == nil {
		from = real
	}
	a.err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return a.member(filepath.ToSlash(filepath.Join(name, rest)), path, d)
	})
}

func (a *Archive) member(name, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = name, 0, 0, "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if a.Timeless {
		h.ModTime, h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}, time.Time{}
	}
	if a.size += h.Size; a.size > maxFiles {
		return fmt.Errorf("the files are larger than %d MiB", maxFiles>>20)
	}
	if err := a.tar.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.CopyN(a.tar, f, h.Size); errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s has become shorter", path)
	}
	return err
}
