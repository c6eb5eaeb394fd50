// Command kubelet is a node without containers: it makes pods ready at once, and answers logs, exec, attach and
// port-forward the way a kubelet does, so that the apiserver's streaming requests have something to stream.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the apiserver")
	nodeName := flag.String("node-name", "node-1", "the node to be")
	clientCA := flag.String("client-ca-file", "", "the CA of the apiserver's client certificate; nobody else is answered")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *nodeName, *clientCA); err != nil {
		klog.ErrorS(err, "kubelet failed")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, nodeName, clientCA string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "fleetcache-e2e-kubelet"
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	listener, err := listen(clientCA)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	node := newNode(client, factory, nodeName, listener.Addr().(*net.TCPAddr).Port)
	pods := newPods(client, factory, nodeName)
	server := &http.Server{Handler: newServer(factory.Core().V1().Pods().Lister()).handler()}

	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go node.run(ctx)
	go pods.run(ctx)
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listen binds a free port and asks every client for a certificate: exec must not be open to whoever is on this machine.
func listen(clientCA string) (net.Listener, error) {
	pem, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", clientCA)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		// Upgrades need HTTP/1.1.
		NextProtos: []string{"http/1.1"},
	})
}

// retryInterval is for what failed because the apiserver is away, which in these tests happens on purpose.
const retryInterval = 200 * time.Millisecond
