package heldgpus

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/placement"
)

// stranger is a process of another container. No process here has this number.
const stranger = 1 << 30

func device(uuid string, holders ...int) gpu.Device { return gpu.Device{UUID: uuid, Holders: holders} }

var node = []placement.GPU{{Index: 0, UUID: "a", HeldBy: "pid 1"}, {Index: 1, UUID: "b"}, {Index: 2, UUID: "c", HeldBy: "pid 2"}, {Index: 3, HeldBy: "declared"}}

// TestStrangers has holders that this process cannot see, so the pauses grow. The watch ignores a
// GPU that was free at first. A missing GPU is not free.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		surveys := [][]gpu.Device{
			{device("c", stranger), device("b"), device("a", stranger)},
			{device("a", stranger)},
			nil, nil, // the survey fails
			{device("a"), device("c", stranger)},
			{device("a", stranger), device("c", stranger)},
		}
		begun := time.Now()
		var at []time.Duration
		var freed [][]placement.GPU
		var warned []string
		w := Watch{
			Survey: func(context.Context) (devices []gpu.Device, err error) {
				at = append(at, time.Since(begun))
				switch n := len(at); {
				case n > 14:
					return []gpu.Device{device("c")}, nil
				case n > len(surveys):
					return surveys[len(surveys)-1], nil
				case surveys[n-1] == nil:
					return nil, errors.New("it hangs")
				default:
					return surveys[n-1], nil
				}
			},
			Freed: func(gpus []placement.GPU) { freed = append(freed, gpus) },
			Warn:  func(err error) { warned = append(warned, err.Error()) },
		}
		w.Run(t.Context(), Held(node))
		if want := [][]placement.GPU{{{Index: 0, UUID: "a"}}, {{Index: 2, UUID: "c"}}}; !reflect.DeepEqual(freed, want) {
			t.Errorf("freed %v, want %v", freed, want)
		}
		if !slices.Equal(warned, []string{"it hangs"}) {
			t.Errorf("warned %q", warned)
		}
		for i := 1; i < len(at); i++ {
			if got, want := at[i]-at[i-1], min(shortest<<(i-1), long); got != want {
				t.Errorf("pause %d was %v, want %v", i, got, want)
			}
		}
	})
}

// TestProcess has a holder that is a process here. The driver still names that process in one
// survey after its end.
func TestProcess(t *testing.T) {
	holder := exec.Command("sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	surveyed, ended, late := make(chan struct{}, 1), make(chan struct{}), false
	w := Watch{
		Survey: func(context.Context) ([]gpu.Device, error) {
			select {
			case surveyed <- struct{}{}:
			default:
			}
			select {
			case <-ended:
				if late {
					return []gpu.Device{device("a")}, nil
				}
				late = true
			default:
			}
			return []gpu.Device{device("a", holder.Process.Pid)}, nil
		},
		Freed: func([]placement.GPU) {},
		Warn:  func(err error) { t.Error(err) },
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Run(t.Context(), node[:1])
	}()
	<-surveyed
	close(ended)
	if err := holder.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = holder.Wait() // it was killed
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Error("the watch has not noticed for 20 s that the holder has ended")
	}
}

// TestEnd ends a watch while its holder, this process, lives.
func TestEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := Watch{Survey: func(context.Context) ([]gpu.Device, error) {
		time.AfterFunc(time.Millisecond, cancel)
		return []gpu.Device{device("a", os.Getpid())}, nil
	}}
	w.Run(ctx, node[:1])
}
