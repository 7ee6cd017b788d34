package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// Server is a fork server in a [Scope]. The keeper forks ranks from the server. A Server is a
// [proc.Forker] for [Scope.Start].
type Server struct {
	keeper *Keeper
	id     int

	mu     sync.Mutex
	broken error
}

// Server shares a fork server that this process has greeted with the keeper. From then on the
// keeper forks from it.
func (k *Keeper) Server(s *forkserver.Server) (*Server, error) {
	data, err := json.Marshal(s.Program())
	if err != nil {
		return nil, err
	}
	fd, err := proc.Duplicate(s.Conn())
	if err != nil {
		return nil, fmt.Errorf("share the fork server: %w", err)
	}
	defer unix.Close(fd)
	k.mu.Lock()
	k.held++
	id := k.held
	k.mu.Unlock()
	if err := k.link.send(message{Do: doServer, Server: id, Data: data}, fd); err != nil {
		return nil, fmt.Errorf("share the fork server: %w", err)
	}
	return &Server{keeper: k, id: id}, nil
}

// Fork fails: only the keeper forks.
func (s *Server) Fork(proc.Birth) (proc.Fork, error) {
	return nil, errors.New("the keeper alone forks from this server")
}

// Err says why the keeper cannot use the server any more.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Close makes the keeper forget the server.
func (s *Server) Close() { s.keeper.say(message{Do: doUnserve, Server: s.id}) }

func (s *Server) heard(m message) {
	if m.Broken {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken = errors.New(m.Unforked)
	}
}

// addServer adds a server of the agent.
func (k *keeper) addServer(m message, fds []int) error {
	file, err := single(fds, "the connection of a fork server")
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	var p forkserver.Program
	socket, ok := conn.(*net.UnixConn)
	if err := json.Unmarshal(m.Data, &p); err != nil || !ok {
		return errors.Join(err, conn.Close())
	}
	k.servers[m.Server] = forkserver.Share(socket, p)
	return nil
}

// unserve forgets a server.
func (k *keeper) unserve(id int) {
	if s := k.servers[id]; s != nil {
		delete(k.servers, id)
		_ = s.Close()
	}
}

// noServer is a server that the keeper does not have.
type noServer struct{}

func (noServer) Fork(proc.Birth) (proc.Fork, error) {
	return nil, errors.New("the keeper does not have the fork server")
}
