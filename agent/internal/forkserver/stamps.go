package forkserver

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

// Stamps are the size, modification time and inode of the files that modules were imported from, by
// path.
type Stamps map[string]string

func stampsOf(words []string) Stamps {
	s := Stamps{}
	for i := 0; i+1 < len(words); i += 2 {
		s[words[i]] = words[i+1]
	}
	return s
}

// Changed fails if a file has changed, as a user sees it, since it was imported. The error names
// the file. Changed waits for slow file systems.
func (s Stamps) Changed(as *safefile.Rights) error {
	search, ctx := errgroup.WithContext(context.Background())
	paths := make(chan string)
	found := make(chan string, 1)
	for range 4 * runtime.GOMAXPROCS(0) { // a shared file system answers many questions at once
		search.Go(func() error {
			return as.Do(func() error {
				for path := range paths {
					if stampOf(path) != s[path] {
						select {
						case found <- path:
						default:
						}
					}
				}
				return nil
			})
		})
	}
	go func() {
		defer close(paths)
		for path := range s {
			select {
			case paths <- path:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := search.Wait(); err != nil {
		return err // the files cannot be read
	}
	select {
	case path := <-found:
		return fmt.Errorf("%s has changed", path)
	default:
		return nil
	}
}

func stampOf(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %d %d", st.Size, st.Mtim.Nano(), st.Ino)
}
