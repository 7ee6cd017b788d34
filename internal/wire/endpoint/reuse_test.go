package endpoint_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/wire/endpoint"
)

// TestTheEndpointOfAKilledAgent checks that the endpoint is opened again at its known path, no
// matter what is left there, unless another user owns the path.
func TestTheEndpointOfAKilledAgent(t *testing.T) {
	reopen := func(dir string) (*endpoint.Endpoint, error) {
		return endpoint.Open(endpoint.Options{
			UID: os.Geteuid(), GID: os.Getegid(), Addr: netip.MustParseAddr("127.0.0.1"), Dir: dir, Warn: func(err error) { t.Error(err) },
		})
	}
	for name, left := range map[string]func(dir string) error{
		"all":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "endpoint"), nil, 0o600) }, // in the place of the socket
		"none":    os.Remove,
		"another": func(dir string) error { return os.Chmod(dir, 0o755) },
		"a link": func(dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(t.TempDir(), dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := left(dir); err != nil {
				t.Fatal(err)
			}
			e, err := reopen(dir)
			if name == "another" || name == "a link" {
				if err == nil {
					t.Errorf("%s is taken", dir)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Dir() != dir || e.Path() != filepath.Join(dir, "endpoint") {
				t.Errorf("it is at %s", e.Path())
			}
			come(t, e, frame(mine))
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the directory is left")
			}
		})
	}
}
