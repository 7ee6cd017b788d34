package nccl_test

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/rankenv"
)

// anyone is an open function for a process that may open every device file.
func anyone(string) error { return nil }

func detect(m machine, addr string) (nccl.Facts, string) {
	return nccl.Detect(m, netip.MustParseAddr(addr), interfaces, anyone)
}

var interfaces = []nccl.Interface{
	{Name: "lo", Addrs: prefixes("127.0.0.1/8", "::1/128")},
	{Name: "docker0", Addrs: prefixes("172.17.0.1/16")},
	{Name: "eth0"},
	{Name: "eth1", Addrs: prefixes("10.0.0.5/24", "fd00::5/64", "fe80::5/64")},
}

func prefixes(text ...string) (out []netip.Prefix) {
	for _, t := range text {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func TestDetect(t *testing.T) {
	for name, c := range map[string]struct {
		fabric          nccl.Fabric
		devices, others string
		reason          string
	}{
		"p4d": {
			nccl.EFA, "rdmap144s27 rdmap160s27 rdmap16s27 rdmap32s27", "",
			"it can use rdmap144s27, rdmap160s27, rdmap16s27, rdmap32s27",
		},
		"p5":    {nccl.EFA, "32 devices", "", "it can use rdmap100s0, rdmap101s0, rdmap114s0, rdmap115s0 and 28 more"},
		"p5en":  {nccl.EFA, "16 devices", "", "it can use rdmap117s0, rdmap118s0, rdmap119s0, rdmap120s0 and 12 more"},
		"gb200": {nccl.EFA, "rdmap1s0 rdmap2s0 rdmap3s0 rdmap4s0", "ibp115s0f0", "it can use rdmap1s0, rdmap2s0, rdmap3s0, rdmap4s0"},
		"dgx": {
			nccl.InfiniBand, "mlx5_0 mlx5_10 mlx5_11 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9", "mlx5_1 mlx5_7",
			"it can use mlx5_0, mlx5_10, mlx5_11, mlx5_3 and 4 more",
		},
		"roce":      {nccl.RoCE, "mlx5_0", "", "it can use mlx5_0"},
		"unplugged": {nccl.TCP, "", "", "no RDMA device that it can use (mlx5_0: no active port)"},
		"laptop":    {nccl.TCP, "", "", "no RDMA device"},
	} {
		t.Run(name, func(t *testing.T) {
			f, reason := detect(machines()[name], "10.0.0.5")
			devices := strings.Join(f.Devices, " ")
			if len(f.Devices) > 8 {
				devices = fmt.Sprint(len(f.Devices), " devices")
			}
			if f.Fabric != c.fabric || devices != c.devices || strings.Join(f.Others, " ") != c.others {
				t.Errorf("found %+v", f)
			}
			if want := fmt.Sprintf("%s: %s; eth1 has 10.0.0.5", c.fabric, c.reason); f.Interface != "eth1" || reason != want {
				t.Errorf("interface %s because %q, want %q", f.Interface, reason, want)
			}
		})
	}
}

// TestVisibleIsNotUsable simulates a container that sees the node's devices in /sys but has no
// device files.
func TestVisibleIsNotUsable(t *testing.T) {
	asked := map[string]bool{}
	f, reason := nccl.Detect(p4d(), netip.MustParseAddr("10.0.0.5"), interfaces, func(name string) error {
		asked[name] = true
		return &fs.PathError{Op: "open", Path: "/dev/infiniband/" + name, Err: fs.ErrPermission}
	})
	if f.Fabric != nccl.TCP || len(f.Devices) > 0 || len(asked) != 4 || !asked["uverbs3"] {
		t.Errorf("%+v after asking for %v", f, asked)
	}
	if !strings.Contains(reason, "rdmap16s27: open /dev/infiniband/uverbs0: permission denied") {
		t.Error(reason)
	}
	m := roce()
	delete(m.MapFS, "sys/class/infiniband_verbs/uverbs0/ibdev")
	if f, reason = detect(m, "10.0.0.5"); f.Fabric != nccl.TCP || !strings.Contains(reason, "mlx5_0: no device file") {
		t.Errorf("%+v because %s", f, reason)
	}
}

func TestInterface(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.5": "eth1", "::ffff:10.0.0.5": "eth1", "fd00::5": "eth1", "fe80::5%eth1": "eth1", "172.17.0.1": "docker0",
		"127.0.0.1": "lo", "127.0.0.2": "lo", "::1": "lo",
		// An address in the same network is not the interface's own address, and Detect must not
		// guess.
		"10.0.0.6": "", "fd00::6": "",
	} {
		f, reason := detect(newMachine(), addr)
		if f.Interface != want || want == "" && !strings.HasSuffix(reason, "no interface has "+addr) {
			t.Errorf("%s is on %q because %q, want %q", addr, f.Interface, reason, want)
		}
	}
}

// TestThisMachine checks on any machine that Detect finds the loopback interface, and follows the
// links in the real /sys.
func TestThisMachine(t *testing.T) {
	all, err := nccl.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	f, reason := nccl.Detect(os.DirFS("/"), netip.MustParseAddr("127.0.0.1"), all, anyone)
	if f.Interface == "" || !strings.HasPrefix(reason, string(f.Fabric)+": ") {
		t.Errorf("%+v because %q", f, reason)
	}
}

// TestRealLinks uses a tree in a real file system, where the kernel follows links instead of MapFS.
func TestRealLinks(t *testing.T) {
	root := t.TempDir()
	for name, f := range p5().MapFS {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.Mode&fs.ModeSymlink != 0 {
			err = os.Symlink(string(f.Data), path)
		} else {
			err = os.WriteFile(path, f.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if f, reason := nccl.Detect(os.DirFS(root), netip.Addr{}, nil, anyone); f.Fabric != nccl.EFA || len(f.Devices) != 32 {
		t.Errorf("%+v because %q", f, reason)
	}
}

func TestVars(t *testing.T) {
	const (
		sockets = " NCCL_SOCKET_IFNAME==eth1 GLOO_SOCKET_IFNAME=eth1"
		efa     = "FI_EFA_USE_HUGE_PAGE=0" + sockets
		old     = "FI_EFA_USE_HUGE_PAGE=0 FI_PROVIDER=efa NCCL_PROTO=simple FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1" + sockets
		classic = "FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1 NCCL_BUFFSIZE=8388608 NCCL_P2P_NET_CHUNKSIZE=524288 " +
			"CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=1"
		tcp   = sockets
		noTCP = "NCCL_NET=Socket" + sockets
		hca   = "NCCL_IB_HCA==mlx5_0,mlx5_10,mlx5_11,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9" + sockets
	)
	for name, c := range map[string]struct{ auto, efa, ib, roce, tcp string }{
		"p4d":       {old, old, sockets, sockets, noTCP},
		"p5":        {efa, efa, sockets, sockets, noTCP},
		"p5en":      {efa, efa, sockets, sockets, noTCP},
		"gb200":     {efa, efa, sockets, sockets, noTCP},
		"dgx":       {hca, efa, hca, sockets, noTCP},
		"roce":      {sockets, efa, sockets, sockets, noTCP},
		"unplugged": {tcp, efa, sockets, sockets, tcp},
		"laptop":    {tcp, efa, sockets, sockets, tcp},
	} {
		f, _ := detect(machines()[name], "10.0.0.5")
		for preset, want := range map[string]string{
			"auto": c.auto, "efa": c.efa, "efa-classic": classic, "ib": c.ib, "roce": c.roce, "tcp": c.tcp, "none": "",
		} {
			vars, err := nccl.Vars(preset, f.Own(), f)
			if err != nil || !slices.Equal(strings.Fields(want), pairs(t, vars)) {
				t.Errorf("%s on %s: %v, %v; want %s", preset, name, pairs(t, vars), err, want)
			}
		}
	}
}

// pairs returns variables as NAME=value. It fails the test if a variable's source is not Preset, or
// if a variable has no reason.
func pairs(t *testing.T, vars []rankenv.Var) (out []string) {
	t.Helper()
	for _, v := range vars {
		if why := strings.TrimPrefix(v.Reason, "preset "); v.Source != rankenv.Preset || why == v.Reason {
			t.Errorf("%+v lacks a source or a reason", v)
		}
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

func TestUnknown(t *testing.T) {
	for _, preset := range []string{"", "EFA", "infiniband"} {
		_, err := nccl.Vars(preset, nccl.Agreement{}, nccl.Facts{})
		want := fmt.Sprintf("unknown preset %q: want auto, efa, efa-classic, ib, roce, tcp, none", preset)
		if err == nil || err.Error() != want {
			t.Errorf("Vars(%q) says %v, want %s", preset, err, want)
		}
	}
	if vars, err := nccl.Vars("auto", nccl.Agreement{}, nccl.Facts{}); err != nil || len(vars) != 0 {
		t.Errorf("nothing is known: %v, %v", vars, err)
	}
}
