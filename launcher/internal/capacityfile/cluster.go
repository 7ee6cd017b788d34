package capacityfile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/golaunch/golaunch/internal/core/capacity"
)

// Cluster has the values of a file that say where golaunch up starts the coordinator, and how
// golaunch prepares machines of a cloud.
type Cluster struct {
	// Name is the cluster's name, by which golaunch finds its machines in a cloud.
	Name string
	Head Head
	// Listen is where the coordinator listens, in the form of its --listen.
	Listen string
	// User is the user name with which golaunch logs in to machines of a cloud; when empty, the
	// default user of the machine's image. Key is the file of a private key for this login; when
	// empty, golaunch makes a key.
	User, Key string
	// Files are copied to the head and to machines of a cloud.
	Files []Mount
	// Setup are commands that each machine of a cloud runs before its agent or its coordinator
	// starts. HeadSetup are commands that the head runs before its coordinator starts.
	Setup, HeadSetup []string
	// Public says that golaunch reaches the head at its public address, if the head is a cloud's
	// machine.
	Public bool
	// Ray says that the file is one of Ray's cluster launcher, which has no key for Listen.
	Ray bool
}

// Head is where the coordinator runs: this machine, a host that ssh reaches, or a node of a kind.
type Head struct{ Host, Kind string }

// Mount is a file or directory, From on this machine and To on the nodes.
type Mount struct {
	To, From string
	// Line is the number of the line in the cluster's file.
	Line int
}

// DefaultName is the name of a cluster whose file gives no name.
const DefaultName = "default"

// set sets a field of a file.
func (f *File) set(key string, at, n *yaml.Node) (err error) {
	switch key {
	case "name":
		f.Name, err = clusterName(n)
	case "head":
		f.Head, err = head(n)
	case "listen":
		f.Listen, err = scalar(n, "HOST:PORT, HOST or :PORT")
	case "ssh":
		err = each(n, func(key string, at, n *yaml.Node) (err error) {
			switch key {
			case "user":
				f.User, err = word(n, "the name of a user")
			case "key":
				f.Key, err = scalar(n, "the file of a private key")
			default:
				err = unknown(at, "user", "key")
			}
			return err
		})
	case "files":
		f.Files, err = mounts(n)
	case "setup":
		f.Setup, err = words(n)
	case "head_setup":
		f.HeadSetup, err = words(n)
	default:
		return unknown(at, "kinds", "max", "limits", "name", "head", "listen", "ssh", "files", "setup", "head_setup")
	}
	return err
}

func clusterName(n *yaml.Node) (string, error) {
	text, err := scalar(n, "the name of a cluster")
	if err == nil && (!kindName.Get().MatchString(text) || len(text) > capacity.MaxKind) {
		return "", wrong(n, fmt.Sprintf("the name of a cluster: small letters, digits and hyphens, %d at most", capacity.MaxKind))
	}
	return text, err
}

func head(n *yaml.Node) (h Head, err error) {
	if n.Kind != yaml.MappingNode {
		h.Host, err = word(n, "[USER@]HOST, or kind: with a kind of nodes")
		return h, err
	}
	err = each(n, func(key string, at, n *yaml.Node) (err error) {
		if key != "kind" {
			return unknown(at, "kind")
		}
		h.Kind, err = word(n, "a kind of nodes")
		return err
	})
	return h, err
}

// word reads a scalar that is passed to a command. It refuses an empty text, and a text that the
// command would take for an option or for several words.
func word(n *yaml.Node, want string) (string, error) {
	text, err := scalar(n, want)
	if err == nil && (text == "" || strings.HasPrefix(text, "-") || strings.ContainsAny(text, " \t\n\x00")) {
		return "", wrong(n, want)
	}
	return text, err
}

// mounts reads a mapping from targets to files.
func mounts(n *yaml.Node) (all []Mount, err error) {
	err = each(n, func(to string, at, n *yaml.Node) error {
		from, err := scalar(n, "a file or directory of this machine")
		if err != nil {
			return err
		}
		clean := path.Clean(strings.TrimPrefix(to, "~/"))
		if !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "~/") || clean == "/" || clean == "." || strings.HasPrefix(clean, "..") || strings.ContainsAny(to, "\n\x00") {
			return wrong(at, "an absolute path on the nodes, or one that begins with ~/")
		}
		all = append(all, Mount{To: to, From: from, Line: at.Line})
		return nil
	})
	return all, err
}

// check checks that the parts of a file fit together.
func (f *File) check() error {
	if f.Name == "" {
		f.Name = DefaultName
		if i := slices.IndexFunc(f.Kinds, func(k Kind) bool { return slices.Contains(Clouds, k.Provider) }); i >= 0 {
			return fmt.Errorf("the cluster has no name, by which the machines of %s are found: give it one that no other has in that account", f.Kinds[i].Name)
		}
	}
	least := 0
	for _, k := range f.Kinds {
		least += k.Min
	}
	if f.Max > 0 && least > f.Max {
		return fmt.Errorf("its kinds have at least %d nodes, and all together may have %d", least, f.Max)
	}
	if f.Head.Kind == "" {
		return nil
	}
	i := slices.IndexFunc(f.Kinds, func(k Kind) bool { return k.Name == f.Head.Kind })
	if i < 0 {
		return fmt.Errorf("the head is of kind %s, which is not among the kinds", f.Head.Kind)
	}
	if !slices.Contains(Clouds, f.Kinds[i].Provider) {
		return fmt.Errorf("the head is of kind %s: only a machine of %s can be made for it; name a host", f.Head.Kind, strings.Join(Clouds, ", "))
	}
	return nil
}
