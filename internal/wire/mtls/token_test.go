package mtls

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const text = "0123456789abcdef0123456789abcdef"

func TestTokenHidesItself(t *testing.T) {
	token, err := ParseToken(" " + text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if token.Text() != text {
		t.Errorf("text %q, want %q", token.Text(), text)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %s %+v %#v %q", token, token, token, struct{ T Token }{token}, token)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", token, "in", struct{ T Token }{token})
	if err := json.NewEncoder(&out).Encode(token); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), text) {
		t.Errorf("the token shows in %s", &out)
	}
	if len(token.ID()) != 4 || !strings.Contains(out.String(), "token "+token.ID()) {
		t.Errorf("ID %q, output %s", token.ID(), &out)
	}
}

func TestLoadToken(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := write("foreign", text, 0o600)
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 1234, 1234); err != nil {
			t.Fatal(err)
		}
	} else {
		foreign = ""
	}
	for _, c := range []struct{ name, path, env, want string }{
		{"another user's", foreign, "short", cmp.Or(map[bool]string{true: "belongs to uid 1234"}[foreign != ""], "fewer than 16")},
		{"file", write("good", text+"\r\n", 0o600), "", ""},
		{"file before variable", write("first", text, 0o400), "short", ""},
		{"variable", "", text, ""},
		{"short variable", "", "secret", "GOLAUNCH_TOKEN: the token has 6 bytes, fewer than 16"},
		{"short file", write("short", "fifteen bytes..\n", 0o600), "", "the token has 15 bytes"},
		{"long file", write("long", strings.Repeat("x", 1<<20), 0o600), "", "more than 4096 bytes"},
		{"missing file", filepath.Join(dir, "none"), "", "no such file"},
		{"readable by the group", write("group", text, 0o640), "", "(mode 0640); run: chmod 600 " + dir + "/group"},
		{"a directory", dir, "", " is a directory; name the file"},
		{"a submit token", "", Token{text: text}.Submit().Text(), "a node or a coordinator needs the token of the cluster itself"},
		{"half a submit token", "", Token{text: text}.Submit().Text()[:99], "GOLAUNCH_TOKEN: the submit token is incomplete"},
		{"readable by all", write("all", text, 0o604), "", "(mode 0604); run: chmod 600"},
	} {
		token, err := LoadToken(c.path, c.env)
		if c.want == "" && (err != nil || token.Text() != text) {
			t.Errorf("%s: token %q, error %v", c.name, token.Text(), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error shows the token: %v", c.name, err)
		}
	}
}

func TestFirstUseMakesOneToken(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	var tokens [16]Token
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = LoadToken("", ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token.Text()) != 64 {
			t.Fatalf("tokens %q and %q", token.Text(), tokens[0].Text())
		}
	}
	for name, want := range map[string]os.FileMode{".golaunch": 0o700, ".golaunch/token": 0o600} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v, want %v", name, info.Mode(), err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(home, ".golaunch")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
