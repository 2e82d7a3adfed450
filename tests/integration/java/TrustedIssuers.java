import java.io.File;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** Prints the subjects that Java trusts when a key store is its trust store: TrustedIssuers FILE PASSWORD. */
public class TrustedIssuers {
    public static void main(String[] arguments) throws Exception {
        KeyStore store = KeyStore.getInstance(new File(arguments[0]), arguments[1].toCharArray());
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        for (X509Certificate each : ((X509TrustManager) factory.getTrustManagers()[0]).getAcceptedIssuers()) {
            System.out.println(each.getSubjectX500Principal().getName());
        }
    }
}
