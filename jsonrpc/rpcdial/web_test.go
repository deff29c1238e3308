package rpcdial

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// oneConn is a listener that has one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (oneConn) Close() error { return nil }

// TestWebServerSlowBody: whoever sends half a message and then nothing holds no
// connection of a server for http URLs for ever.
func TestWebServerSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := rpchttp.Handler(rpchttp.ServerConfig{})
		srv := webServer("/rpc", h)
		client, server := net.Pipe()
		conns := make(chan net.Conn, 1)
		conns <- server
		close(conns)
		go srv.Serve(oneConn{conns: conns})
		begin := time.Now()
		go func() {
			time.Sleep(time.Hour)
			client.Close()
		}()
		io.WriteString(client, "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		answer, _ := io.ReadAll(client)
		if took := time.Since(begin); took > time.Minute || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("after %v: %.100s", took, answer)
		}
		client.Close()
		h.Close()
		srv.Close()
		time.Sleep(time.Hour)
	})
}

// TestWebServerAnswerNotTaken: whoever sends requests and takes nothing of what they are refused
// with holds no connection for ever; a WebSocket is not ended by that.
func TestWebServerAnswerNotTaken(t *testing.T) {
	const shake = "GET /rpc HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
	ws := func() http.Handler {
		return rpcws.Handler(rpcws.AcceptConfig{PingInterval: -1}, func(_ context.Context, s jsonrpc.Stream) { _, _ = s.Read() })
	}
	for name, c := range map[string]struct {
		h       http.Handler
		request string
		ends    bool
	}{
		"other path":   {ws(), "GET /other HTTP/1.1\r\nHost: x\r\n\r\n", true},
		"no handshake": {ws(), "GET /rpc HTTP/1.1\r\nHost: x\r\n\r\n", true},
		"foreign page": {ws(), strings.Replace(shake, "Upgrade:", "Origin: https://foreign.example\r\nUpgrade:", 1), true},
		"a handshake":  {ws(), shake, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := webServer("/rpc", c.h)
			client, server := net.Pipe()
			conns := make(chan net.Conn, 1)
			conns <- server
			close(conns)
			go srv.Serve(oneConn{conns: conns})
			io.WriteString(client, c.request)
			answers := bufio.NewReader(client)
			if !c.ends {
				res, err := http.ReadResponse(answers, nil) //nolint:bodyclose // it is the connection
				if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%s: %v, %v", name, res, err)
				}
			}
			time.Sleep(time.Hour)
			client.SetDeadline(time.Now().Add(time.Second))
			_, err := client.Write([]byte{0x89, 0x80, 0, 0, 0, 0}) // a ping, for a WebSocket
			if ended := errors.Is(err, io.ErrClosedPipe); ended != c.ends || err != nil && !ended {
				t.Errorf("%s: an hour later: %v", name, err)
			}
			pong := make([]byte, 2)
			if _, err := io.ReadFull(answers, pong); !c.ends && (err != nil || pong[0] != 0x8a) {
				t.Errorf("%s: the answer to a ping is %x, %v", name, pong, err)
			}
			client.Close()
			srv.Close()
			time.Sleep(time.Hour)
		})
	}
}
