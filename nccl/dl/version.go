package dl

import "fmt"

// Version is a release of NCCL.
type Version struct{ Major, Minor, Patch int }

// String returns the version as NCCL prints it: 2.30.7.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// decode reverses the macro NCCL_VERSION of nccl.h: 2.8.4 and older are 2804, 2.9.6 and newer are
// 20906.
func decode(code int32) (Version, error) {
	n := int(code)
	switch {
	case n < 1000:
		return Version{}, fmt.Errorf("%d is no version code of NCCL", n)
	case n < 10000:
		return Version{n / 1000, n / 100 % 10, n % 100}, nil
	default:
		return Version{n / 10000, n / 100 % 100, n % 100}, nil
	}
}
