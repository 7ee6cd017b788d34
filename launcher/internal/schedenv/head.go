package schedenv

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// askLimit bounds the run of a launcher's command.
const askLimit = 10 * time.Second

// AskHead sets Head by running the command Ask, if there is one.
func (p *Place) AskHead() error {
	if p.Head != "" || p.Node == 0 || len(p.Ask) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Ask[0], p.Ask[1:]...)
	cmd.Env = helper.Env()
	out, err := cmd.Output()
	if p.Head = strings.TrimSpace(string(out)); err != nil || p.Head == "" {
		return fmt.Errorf("%s does not say where node 0 is (%s: %w); give --rendezvous HOST:PORT with its host",
			p.By, strings.Join(p.Ask, " "), cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}
