package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/torchrun"
)

func newInstall(s *cli.Console) *cobra.Command {
	asTorchrun, asFTLauncher, static := false, false, false
	c := cli.NewVerb("install DIR [--torchrun] [--ft-launcher]", "copy golaunch into a directory", cli.Args(1, 1))
	c.Long = "Use it where there is no cp, as in golaunch's image: an init container copies golaunch into a volume that it shares with the container\n" +
		"of your program. The binary needs nothing else. That image has a build for glibc, which finds GPUs; this is the build that is copied."
	c.Flags().BoolVar(&asTorchrun, "torchrun", false, "make a link there that runs golaunch as torchrun")
	c.Flags().BoolVar(&asFTLauncher, "ft-launcher", false, "make a link there that runs golaunch as ft_launcher")
	c.Flags().BoolVar(&static, "static", false, "copy this build even if the image has one for glibc; for musl, or no libc at all")
	c.RunE = s.Run(func(_ *cobra.Command, args []string) (int, error) {
		from := "/proc/self/exe"
		if _, err := os.Stat(forGlibc); err == nil && !static {
			from = forGlibc
		}
		err := install(from, args[0])
		if err == nil && asTorchrun {
			err = link(args[0], torchrun.Name)
		}
		if err == nil && asFTLauncher {
			err = link(args[0], torchrun.FTName)
		}
		return 0, err
	})
	return c
}

// forGlibc is the path of the golaunch for glibc in the container image.
const forGlibc = "/usr/lib/golaunch/golaunch"

// install copies a binary into a directory. It replaces the file in one step, so a program that
// starts golaunch meanwhile runs the old or the new binary, never a part of one.
func install(from, dir string) (err error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "install golaunch into", Path: dir, Err: errors.New("it is not a directory")}
	}
	if err != nil {
		return fmt.Errorf("%w: name a directory that is there", err)
	}
	self, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("read golaunch: %w", err)
	}
	defer self.Close()
	to, err := os.CreateTemp(dir, ".golaunch-")
	if err != nil {
		return fmt.Errorf("install golaunch into %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(to.Name()) // the earlier error says more
		}
	}()
	_, err = io.Copy(to, self)
	err = errors.Join(err, to.Chmod(0o755), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, "golaunch"))
	}
	if err != nil {
		return fmt.Errorf("install golaunch into %s: %w", dir, err)
	}
	return nil
}

// link makes a link to golaunch in a directory, unless another file has the link's name.
func link(dir, as string) error {
	name := filepath.Join(dir, as)
	if to, err := os.Readlink(name); err == nil && to == "golaunch" {
		return nil
	}
	if err := os.Symlink("golaunch", name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the link %s: there is a %s already; remove it, or install golaunch into another directory", name, as)
		}
		return fmt.Errorf("make the link %s: %w", name, err)
	}
	return nil
}
