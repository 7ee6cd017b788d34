package failurebundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// nodeLimit bounds Words, and also Node.
	nodeLimit = 10 * time.Second
	// maxWords and maxLog bound what is kept of a log file and of the kernel log, in bytes.
	maxWords = 64 << 10
	maxLog   = 64 << 10
)

// Words gathers the environment of the ranks, and the end of their logs in the directory of their
// job. No process may write to the logs any more.
func (b *Bundle) Words(ctx context.Context, dir *safefile.Root, ranks []Rank) {
	var sources []source
	for _, r := range ranks {
		to := fmt.Sprintf("rank-%d/", r.Number)
		sources = append(sources, source{name: to + "environment.txt", from: "as it was started", read: environment(r)})
		for _, name := range r.Logs {
			sources = append(sources, source{name: to + path.Base(name), from: name, read: end(dir, name)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	b.gather(ctx, sources)
}

// Node gathers what the driver and the kernel report, and the counters of the network. It takes at
// most 10 s. If the ranks belong to another user, Node keeps only the kernel log's lines about
// GPUs: other lines may be for root alone (kernel.dmesg_restrict).
func (b *Bundle) Node(ctx context.Context, of *safefile.Rights) {
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	b.gather(ctx, []source{
		{name: "node/nvidia-smi.txt", from: "nvidia-smi -q", read: nvidiaSMI},
		{name: "node/kernel-log.txt", from: "the kernel's log", read: kernelLog(health.ThisMachine().KernelLog, of == nil)},
		{name: "node/network.txt", from: "/sys/class", read: network(os.DirFS("/sys/class"))},
	})
}

func nvidiaSMI(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	return run(ctx, nil, "nvidia-smi", "-q")
}

// end reads the end of a log file.
func end(dir *safefile.Root, name string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f, err := dir.OpenOwn(name, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("it has written nothing")
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxWords), maxWords))
	}
}

// kernelLog returns the Xids of the kernel log, and then the log's end.
func kernelLog(read func() (string, error), whole bool) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		log, err := read()
		if err != nil {
			return nil, fmt.Errorf("read the kernel's log: %w; is kernel.dmesg_restrict set?", err)
		}
		var out strings.Builder
		for _, x := range health.ParseXids(log) {
			fmt.Fprintf(&out, "Xid %d on %s\n", x.Number, x.PCI)
		}
		if whole {
			out.WriteString(log[max(0, len(log)-maxLog):])
		}
		return []byte(out.String()), nil
	}
}

// counters are the files with the state of network devices
// (Documentation/ABI/testing/sysfs-class-net-statistics and sysfs-class-infiniband in the kernel).
var counters = []string{
	"net/*/operstate", "net/*/speed", "net/*/mtu", "net/*/carrier_changes", "net/*/statistics/*",
	"infiniband/*/fw_ver", "infiniband/*/ports/*/state", "infiniband/*/ports/*/phys_state", "infiniband/*/ports/*/rate",
	"infiniband/*/ports/*/counters/*", "infiniband/*/ports/*/hw_counters/*", "infiniband/*/hw_counters/*",
}

// network lists the counters that are not 0, and omits counters that a device does not have.
func network(class fs.FS) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		var out bytes.Buffer
		for _, pattern := range counters {
			names, err := fs.Glob(class, pattern)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				text, err := fs.ReadFile(class, name)
				if value := strings.TrimSpace(string(text)); err == nil && value != "0" {
					fmt.Fprintf(&out, "%s %s\n", name, value)
				}
			}
		}
		return out.Bytes(), nil
	}
}
