package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/internal/usage"
)

// mayRun refuses an agent that would have its ranks run as somebody whom nobody wants.
func (a Agent) mayRun() error {
	switch root := os.Geteuid() == 0; {
	case a.AsSubmitter && !root:
		return usage.Errorf("an agent that runs ranks as those who submitted them must be root: start it as root, or leave out --as-submitter")
	case root && !a.AsSubmitter && !a.AllowRunAsRoot:
		return usage.Errorf("an agent that runs as root makes everybody who has the token root on this node: run it as another user, or give " +
			"--as-submitter (ranks run as those who submitted them) or --allow-run-as-root")
	}
	return nil
}

// submitters says as whom ranks run.
type submitters struct {
	// each says that those of a job run as who submitted it, and root that this may be root.
	each, root bool
}

// user is that of a job's ranks; nil is the agent's own. An error is why there is none: no job falls back to root.
func (s submitters) user(uid *uint32) (*account.User, error) {
	switch {
	case !s.each:
		return nil, nil
	case uid == nil:
		return nil, errors.New("this node runs ranks as the user who submitted them (--as-submitter), and who that is the coordinator does not know: " +
			"submit the job on the coordinator's machine, or see that munge runs on yours and on the coordinator's")
	case *uid == 0 && s.root:
		return nil, nil
	case *uid == 0:
		return nil, errors.New("root submitted the job, and this node runs nothing as root: submit it as another user (or give its agent --allow-run-as-root)")
	}
	u, err := account.Find(context.Background(), *uid)
	if err != nil {
		return nil, fmt.Errorf("this node runs ranks as the user who submitted them (--as-submitter): %w", err)
	}
	return &u, nil
}

// passable makes a directory of this user's, in which others cannot look around, but reach what is theirs.
func passable(dir string) error {
	if err := safefile.Path(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	d, err := safefile.OpenRoot(dir, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat(".")
	if err == nil {
		err = d.Own()
	}
	if err == nil && info.Mode().Perm()&0o011 != 0o011 {
		err = os.Chmod(dir, info.Mode().Perm()|0o111)
	}
	return err
}
