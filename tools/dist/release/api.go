package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// broken returns the parts of the API that programs which import golaunch lose between a tag and
// the checked-out commit; empty if they lose nothing.
func broken(ctx context.Context, root, tag string) (_ string, err error) {
	parent, err := os.MkdirTemp("", "golaunch-release-")
	if err != nil {
		return "", err
	}
	old := filepath.Join(parent, "old")
	if err := run(ctx, root, "git", "worktree", "add", "--quiet", "--detach", old, tag); err != nil {
		return "", errors.Join(err, os.RemoveAll(parent))
	}
	defer func() {
		// The context may have ended, but the tree must be removed.
		err = errors.Join(err, run(context.WithoutCancel(ctx), root, "git", "worktree", "remove", "--force", old), os.RemoveAll(parent))
	}()
	before, err := exported(ctx, old)
	if err != nil {
		return "", err
	}
	now, err := exported(ctx, root)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = apidiff.ModuleChanges(before, now).TextIncompatible(&text, true)
	return text.String(), err
}

// exported are the packages of a tree that programs may import.
func exported(ctx context.Context, dir string) (*apidiff.Module, error) {
	config := &packages.Config{Context: ctx, Dir: dir, Env: append(os.Environ(), "CGO_ENABLED=0"), Mode: packages.NeedName | packages.NeedTypes | packages.NeedModule | packages.NeedImports | packages.NeedDeps}
	found, err := packages.Load(config, "./...")
	if err != nil {
		return nil, fmt.Errorf("read the packages of %s: %w", dir, err)
	}
	m := &apidiff.Module{}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("read package %s of %s: %w", p.PkgPath, dir, p.Errors[0])
		}
		if p.Name != "main" && !slices.Contains(strings.Split(p.PkgPath, "/"), "internal") {
			m.Path = p.Module.Path
			m.Packages = append(m.Packages, p.Types)
		}
	}
	return m, nil
}
