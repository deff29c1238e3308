package s3

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values/s3"
	"github.com/parley-project/parley/interop/internal/install"
)

const (
	gatewayPackage = "github.com/versity/versitygw/cmd/versitygw"
	gatewayVersion = "v1.8.0"

	accessKey = "parley"
	secretKey = "not-a-secret-of-anybody"
	region    = "eu-test-1"
)

// gateway is a server on a folder, which can be stopped and started again.
type gateway struct {
	t       *testing.T
	program string
	dir     string
	address string
	cmd     *exec.Cmd
	log     bytes.Buffer
	buckets atomic.Int64
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	folder, err := install.GoProgram(t.Context(), gatewayPackage, gatewayVersion)
	check(t, err)
	g := &gateway{t: t, program: filepath.Join(folder, "versitygw"), dir: t.TempDir()}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	g.address = l.Addr().String()
	check(t, l.Close())
	for _, name := range []string{"objects", "meta"} {
		check(t, os.Mkdir(filepath.Join(g.dir, name), 0o700))
	}
	g.start()
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			t.Log(g.log.String())
		}
	})
	return g
}

func (g *gateway) start() {
	g.t.Helper()
	g.cmd = exec.Command(g.program, "--port", g.address, "--region", region, "posix", "--sidecar", filepath.Join(g.dir, "meta"), filepath.Join(g.dir, "objects"))
	g.cmd.Env = []string{"ROOT_ACCESS_KEY=" + accessKey, "ROOT_SECRET_KEY=" + secretKey}
	g.cmd.Stdout, g.cmd.Stderr = &g.log, &g.log
	check(g.t, g.cmd.Start())
	var d net.Dialer
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(50 * time.Millisecond) {
		conn, err := d.DialContext(g.t.Context(), "tcp", g.address)
		if err == nil {
			_ = conn.Close()
			return
		}
	}
	g.t.Fatal("the gateway does not listen")
}

func (g *gateway) stop() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Signal(syscall.SIGKILL)
	_ = g.cmd.Wait()
	g.cmd = nil
}

func (g *gateway) client() *awss3.Client {
	return awss3.New(awss3.Options{
		BaseEndpoint: aws.String("http://" + g.address), Region: region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
	})
}

// config is that of a new bucket.
func (g *gateway) config(t *testing.T, prefix string) s3.Config {
	t.Helper()
	bucket := fmt.Sprintf("bucket-%d", g.buckets.Add(1))
	_, err := g.client().CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &bucket})
	check(t, err)
	return s3.Config{
		Endpoint: "http://" + g.address, Region: region, Bucket: bucket, Prefix: prefix, PathStyle: true,
		AccessKey: accessKey, SecretKey: parley.NewSecret([]byte(secretKey)),
	}
}

func open(t *testing.T, cfg s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(context.Background(), cfg)
	check(t, err)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
