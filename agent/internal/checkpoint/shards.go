package checkpoint

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

const metadata = ".metadata"

var (
	shard        = lazyregexp.New(`__(\d+)_\d+\.distcp$`)
	rankMetadata = lazyregexp.New(`^__(\d+)\.metadata$`)
)

// missingShards names what is missing in a directory of torch's distributed checkpoint (DCP): the
// metadata, which is written last, or a file that the metadata lists. The directory may still have
// the metadata of an earlier save. Such metadata is older than a shard.
func missingShards(t *tree) string {
	for _, dir := range t.shardDirs() {
		if why := t.missingShard(dir); why != "" {
			return why
		}
	}
	return ""
}

// shardDirs returns the directories with shards or with metadata.
func (t *tree) shardDirs() (dirs []string) {
	for _, f := range t.files {
		if base := f.base(); base == metadata || rankMetadata.Get().MatchString(base) || strings.HasSuffix(base, ".distcp") {
			if dir := path.Dir(f.path); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func (t *tree) missingShard(dir string) string {
	if all, ok := t.find(path.Join(dir, metadata)); ok {
		return t.shorter(all)
	}
	wrote, described := map[string]bool{}, map[string]bool{}
	for _, f := range t.files {
		if path.Dir(f.path) != dir {
			continue
		}
		if found := shard.Get().FindStringSubmatch(f.base()); found != nil {
			wrote[found[1]] = true
		}
		if found := rankMetadata.Get().FindStringSubmatch(f.base()); found != nil {
			described[found[1]] = true
			if why := t.shorter(f); why != "" {
				return why
			}
		}
	}
	for rank := range wrote {
		if !described[rank] && len(described) > 0 {
			return fmt.Sprintf("rank %s has not written %s", rank, path.Join(dir, "__"+rank+metadata))
		}
	}
	if len(described) == 0 {
		return path.Join(dir, metadata) + " is missing, which is written last"
	}
	return ""
}

// shorter names a file that is shorter than a metadata file states, or newer than the metadata
// file.
func (t *tree) shorter(list file) string {
	found, err := pickled(t.readAt(list, 0, list.size))
	switch {
	case err == nil, t.err != nil:
	case errors.Is(err, errPartly):
		t.err = err
	default:
		return fmt.Sprintf("%s cannot be read: %v", list.path, err)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch f, ok := t.find(path.Join(path.Dir(list.path), name)); {
		case !ok:
			return fmt.Sprintf("%s is missing, which %s lists", name, list.path)
		case f.size < found[name]:
			return fmt.Sprintf("%s has %d of %d bytes", f.path, f.size, found[name])
		case t.newer(f.at, list.at):
			return fmt.Sprintf("%s is newer than %s", f.path, list.path)
		}
	}
	return ""
}
