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
	"testing/fstest"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/rankenv"
)

const (
	active = "4: ACTIVE\n"
	down   = "1: DOWN\n"
)

// device adds an RDMA device as the kernel shows it: a link from the class to the PCI device, which has the vendor.
func device(sys fstest.MapFS, pci, vendor, name, link string, states ...string) {
	dir := "devices/pci0000:00/" + pci
	file := func(path, text string) { sys[path] = &fstest.MapFile{Data: []byte(text)} }
	file(dir+"/vendor", vendor+"\n")
	sys["class/infiniband/"+name] = &fstest.MapFile{
		Data: []byte("../../" + dir + "/infiniband/" + name), Mode: fs.ModeSymlink,
	}
	sys[dir+"/infiniband/"+name+"/device"] = &fstest.MapFile{Data: []byte("../.."), Mode: fs.ModeSymlink}
	for i, state := range states {
		port := fmt.Sprintf("%s/infiniband/%s/ports/%d/", dir, name, i+1)
		file(port+"state", state)
		file(port+"link_layer", link+"\n")
	}
}

func p5() fstest.MapFS {
	sys := fstest.MapFS{}
	for _, slot := range []string{"79", "80", "95"} {
		device(sys, "0000:"+slot+":00.0", "0x1d0f", "rdmap"+slot+"s0", "Unspecified", active)
	}
	return sys
}

// dgx has InfiniBand for NCCL and Ethernet for storage.
func dgx() fstest.MapFS {
	sys := fstest.MapFS{}
	device(sys, "0000:18:00.0", "0x15b3", "mlx5_0", "InfiniBand", active)
	device(sys, "0000:29:00.0", "0x15b3", "mlx5_1", "Ethernet", active)
	device(sys, "0000:40:00.0", "0x15b3", "mlx5_2", "InfiniBand", down)
	device(sys, "0000:4f:00.0", "0x15b3", "mlx5_3", "InfiniBand", down, active)
	return sys
}

func roce() fstest.MapFS {
	sys := fstest.MapFS{}
	device(sys, "0000:18:00.0", "0x15b3", "mlx5_0", "Ethernet", active)
	// A software device is not on a PCI bus.
	sys["class/infiniband/rxe0/ports/1/state"] = &fstest.MapFile{Data: []byte(down)}
	return sys
}

func unplugged() fstest.MapFS {
	sys := fstest.MapFS{}
	device(sys, "0000:18:00.0", "0x15b3", "mlx5_0", "InfiniBand", down)
	return sys
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
		sys             fs.FS
		fabric          nccl.Fabric
		devices, others string
		reason          string
	}{
		"p5":        {p5(), nccl.EFA, "rdmap79s0 rdmap80s0 rdmap95s0", "", "efa: active ports on rdmap79s0, rdmap80s0, rdmap95s0"},
		"dgx":       {dgx(), nccl.InfiniBand, "mlx5_0 mlx5_3", "mlx5_1", "ib: active ports on mlx5_0, mlx5_3"},
		"roce":      {roce(), nccl.RoCE, "mlx5_0", "", "roce: active ports on mlx5_0"},
		"unplugged": {unplugged(), nccl.TCP, "", "", "tcp: no active port on mlx5_0"},
		"laptop":    {fstest.MapFS{"class/net/wlan0": {}}, nccl.TCP, "", "", "tcp: no RDMA device"},
	} {
		t.Run(name, func(t *testing.T) {
			f, reason := nccl.Detect(c.sys, netip.MustParseAddr("10.0.0.5"), interfaces)
			if f.Fabric != c.fabric || strings.Join(f.Devices, " ") != c.devices || strings.Join(f.Others, " ") != c.others {
				t.Errorf("found %+v", f)
			}
			if f.Interface != "eth1" || reason != c.reason+"; eth1 has 10.0.0.5" {
				t.Errorf("interface %s because %q", f.Interface, reason)
			}
		})
	}
}

func TestInterface(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.5": "eth1", "::ffff:10.0.0.5": "eth1", "fd00::5": "eth1", "fe80::5%eth1": "eth1", "172.17.0.1": "docker0",
		"127.0.0.1": "lo", "127.0.0.2": "lo", "::1": "lo",
		// The same network is not the same address, and no guess is made.
		"10.0.0.6": "", "fd00::6": "",
	} {
		f, reason := nccl.Detect(fstest.MapFS{}, netip.MustParseAddr(addr), interfaces)
		if f.Interface != want || want == "" && !strings.HasSuffix(reason, "no interface has "+addr) {
			t.Errorf("%s is on %q because %q, want %q", addr, f.Interface, reason, want)
		}
	}
}

// TestThisMachine runs on whatever it is: its loopback interface is found, and the real /sys is followed through its links.
func TestThisMachine(t *testing.T) {
	all, err := nccl.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	f, reason := nccl.Detect(os.DirFS("/sys"), netip.MustParseAddr("127.0.0.1"), all)
	if f.Interface == "" || !strings.HasPrefix(reason, string(f.Fabric)+": ") {
		t.Errorf("%+v because %q", f, reason)
	}
}

// TestRealLinks has a tree on a real file system, where links are the kernel's business and not MapFS's.
func TestRealLinks(t *testing.T) {
	root := t.TempDir()
	for name, f := range p5() {
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
	if f, reason := nccl.Detect(os.DirFS(root), netip.Addr{}, nil); f.Fabric != nccl.EFA || len(f.Devices) != 3 {
		t.Errorf("%+v because %q", f, reason)
	}
}

func TestVars(t *testing.T) {
	const (
		sockets = " NCCL_SOCKET_IFNAME==eth1 GLOO_SOCKET_IFNAME=eth1"
		efa     = "FI_EFA_USE_HUGE_PAGE=0" + sockets
		classic = "FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1 NCCL_BUFFSIZE=8388608 NCCL_P2P_NET_CHUNKSIZE=524288 " +
			"CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=1"
		tcp   = sockets
		noTCP = "NCCL_NET=Socket" + sockets
		hca   = "NCCL_IB_HCA==mlx5_0,mlx5_3" + sockets
	)
	for _, c := range []struct {
		machine                                    string
		sys                                        fs.FS
		auto, efa, efaClassic, ib, roce, tcp, none string
	}{
		{"p5", p5(), efa, efa, classic, sockets, sockets, noTCP, ""},
		{"dgx", dgx(), hca, efa, classic, hca, sockets, noTCP, ""},
		{"roce", roce(), sockets, efa, classic, sockets, sockets, noTCP, ""},
		{"unplugged", unplugged(), tcp, efa, classic, sockets, sockets, tcp, ""},
		{"laptop", fstest.MapFS{}, tcp, efa, classic, sockets, sockets, tcp, ""},
	} {
		f, _ := nccl.Detect(c.sys, netip.MustParseAddr("10.0.0.5"), interfaces)
		for preset, want := range map[string]string{
			"auto": c.auto, "efa": c.efa, "efa-classic": c.efaClassic, "ib": c.ib, "roce": c.roce, "tcp": c.tcp, "none": c.none,
		} {
			vars, err := nccl.Vars(preset, f)
			if err != nil || !slices.Equal(strings.Fields(want), pairs(t, vars)) {
				t.Errorf("%s on %s: %v, %v; want %s", preset, c.machine, pairs(t, vars), err, want)
			}
		}
	}
}

// pairs fails the test for a variable that does not say that a preset set it, and why.
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
		_, err := nccl.Vars(preset, nccl.Facts{})
		want := fmt.Sprintf("unknown preset %q: want auto, efa, efa-classic, ib, roce, tcp, none", preset)
		if err == nil || err.Error() != want {
			t.Errorf("Vars(%q) says %v, want %s", preset, err, want)
		}
	}
	if vars, err := nccl.Vars("auto", nccl.Facts{}); err != nil || len(vars) != 0 {
		t.Errorf("nothing is known: %v, %v", vars, err)
	}
}
