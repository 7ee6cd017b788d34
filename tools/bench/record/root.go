package record

import (
	"errors"
	"os"
)

// ChangeToRoot makes the root of the repository the working directory. All paths begin there, but
// go run -C begins in a directory below it.
func ChangeToRoot() error {
	for range 4 {
		if _, err := os.Stat("cmd/golaunch"); err == nil {
			return nil
		}
		if err := os.Chdir(".."); err != nil {
			return err
		}
	}
	return errors.New("this is not in golaunch's repository")
}
